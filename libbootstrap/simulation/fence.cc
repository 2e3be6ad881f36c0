// What the slurmstepds of a step do in a fence that collects data: around a ring, or up and down a tree.
// SPDX-License-Identifier: Apache-2.0
#include "simulation/fence.h"

#include <algorithm>

namespace bootstrap::simulation {
namespace {

constexpr Node kMostByMessages = 256;

class Ring : public Fence {
 public:
  Ring(World& world, FenceLoad load, NodeAction released)
      : world_(world), load_(load), released_(std::move(released)), has_(world.scenario().nodes()) {}

  void contribute(Node node) override {
    if (size() > 1) pass_on(node, 1);
    take(node);
  }

 private:
  Node size() const { return static_cast<Node>(has_.size()); }
  void pass_on(Node from, Node hop);
  void take(Node node) {
    if (++has_[node] == size()) released_(node);
  }

  World& world_;
  FenceLoad load_;
  NodeAction released_;
  std::vector<Node> has_;  // contributions that a node has, its own included
};

// `hop`: how many nodes it has passed, the next one included.
void Ring::pass_on(Node from, Node hop) {
  const auto& constants = world_.constants();
  const Node to = (from + 1) % size();
  const auto latency = constants.hop + (load_.is_first && hop == 1 ? constants.first_hop : 0);
  world_.send(from, to, latency, load_.bytes_of_node, [this, to, hop] {
    world_.serve_on(to, world_.constants().hop_server, [this, to, hop] {
      if (hop + 1 < size()) pass_on(to, hop + 1);
      take(to);
    });
  });
}

class RingByHops : public Fence {
 public:
  RingByHops(World& world, FenceLoad load, NodeAction released)
      : world_(world), load_(load), released_(std::move(released)), ready_(world.scenario().nodes(), -1) {}

  void contribute(Node node) override {
    ready_[node] = world_.queue().now();
    if (++contributed_ == ready_.size()) go_around();
  }

 private:
  void go_around();

  World& world_;
  FenceLoad load_;
  NodeAction released_;
  std::vector<Seconds> ready_;
  std::size_t contributed_ = 0;
};

void RingByHops::go_around() {
  const auto& constants = world_.constants();
  const auto nodes = ready_.size();
  const Seconds length = load_.bytes_of_node / constants.link;
  auto& noise = world_.noise();
  std::vector<Seconds> left(nodes);        // when the message of this hop has left a node, and its link is free again
  std::vector<Seconds> handled(nodes, 0);  // when its server is
  for (std::size_t node = 0; node < nodes; ++node) left[node] = ready_[node] + length;
  for (std::size_t hop = 1; hop < nodes; ++hop) {
    const Seconds latency = constants.hop + (load_.is_first && hop == 1 ? constants.first_hop : 0);
    Seconds sent = left[nodes - 1];  // to this node, by the one before it
    for (std::size_t node = 0; node < nodes; ++node) {
      const Seconds arrived = sent + latency * noise.factor();
      handled[node] = std::max(handled[node], arrived) + constants.hop_server * noise.factor();
      sent = left[node];
      left[node] = std::max(handled[node], sent) + length;
    }
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    const auto done = std::max(handled[node], ready_[node]);
    world_.queue().at(done, [this, node] { released_(static_cast<Node>(node)); });
  }
}

class Tree : public Fence {
 public:
  Tree(World& world, FenceLoad load, NodeAction released);

  void contribute(Node node) override { collect(node); }

 private:
  Node parent(Node node) const { return (node - 1) / width_; }
  void collect(Node node);
  void hand_down(Node node);
  Seconds latency() const { return world_.constants().hop + (load_.is_first ? world_.constants().first_hop : 0); }

  World& world_;
  FenceLoad load_;
  NodeAction released_;
  Node width_;
  std::vector<Node> missing_;  // contributions that a node waits for: its own, and one of each child
  std::vector<Node> below_;    // nodes in the part of the tree that begins here
};

Tree::Tree(World& world, FenceLoad load, NodeAction released)
    : world_(world),
      load_(load),
      released_(std::move(released)),
      width_(static_cast<Node>(world.constants().tree_width)),
      missing_(world.scenario().nodes(), 1),
      below_(world.scenario().nodes(), 1) {
  for (auto node = static_cast<Node>(below_.size() - 1); node > 0; --node) {
    ++missing_[parent(node)];
    below_[parent(node)] += below_[node];
  }
}

void Tree::collect(Node node) {
  if (--missing_[node] > 0) return;
  if (node == 0) return hand_down(0);
  world_.send(node, parent(node), latency(), load_.bytes_of_node * below_[node], [this, to = parent(node)] {
    world_.serve_on(to, world_.constants().hop_server, [this, to] { collect(to); });
  });
}

void Tree::hand_down(Node node) {
  const auto nodes = static_cast<Node>(below_.size());
  const auto first = static_cast<Node>(std::min<std::uint64_t>(std::uint64_t{node} * width_ + 1, nodes));
  const Node last = first + std::min(width_, nodes - first);
  for (Node child = first; child < last; ++child) {
    world_.serve_on(node, world_.constants().hop_server, [this, node, child] {
      world_.send(node, child, world_.constants().hop, load_.bytes_of_node * static_cast<double>(below_.size()),
                  [this, child] { hand_down(child); });
    });
  }
  world_.serve_on(node, 0, [this, node] { released_(node); });
}

}  // namespace

std::unique_ptr<Fence> make_ring(World& world, FenceLoad load, NodeAction released) {
  return std::make_unique<Ring>(world, load, std::move(released));
}

std::unique_ptr<Fence> make_ring_by_hops(World& world, FenceLoad load, NodeAction released) {
  return std::make_unique<RingByHops>(world, load, std::move(released));
}

std::unique_ptr<Fence> make_tree(World& world, FenceLoad load, NodeAction released) {
  return std::make_unique<Tree>(world, load, std::move(released));
}

std::unique_ptr<Fence> make_fence(World& world, FenceLoad load, NodeAction released) {
  if (world.scenario().fence == FenceKind::kTree) return make_tree(world, load, std::move(released));
  // Nodes that wait for each other's cores are nothing that can be computed hop by hop.
  if (world.constants().machine_cores > 0 || world.scenario().nodes() <= kMostByMessages)
    return make_ring(world, load, std::move(released));
  return make_ring_by_hops(world, load, std::move(released));
}

}  // namespace bootstrap::simulation
