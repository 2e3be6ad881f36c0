// One value from the first rank of a node to its others, through memory that they share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

// All ranks of the node make one with the same name. Ends the process with a message when the system refuses.
class NodeShare {
 public:
  static constexpr std::size_t kMost = 128;  // bytes of a value

  // `name` is that of a POSIX shared memory object: "/bench-12.0-node001".
  NodeShare(std::string name, bool is_first);
  NodeShare(const NodeShare&) = delete;
  NodeShare& operator=(const NodeShare&) = delete;
  ~NodeShare();
  void forget_name() const;  // once all have it

  // What the first rank has in `value`, the others get there.
  void pass_on(std::string& value);

 private:
  struct Page;
  std::string name_;
  bool is_first_;
  Page* page_ = nullptr;
  std::uint32_t rounds_ = 0;
};

}  // namespace bench
