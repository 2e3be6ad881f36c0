// Runs part of a test in its own network namespace, where it may change settings of a whole machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace bootstrap {

inline bool bring_up_loopback() {
  const int control = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  request.ifr_flags = IFF_UP;
  const bool is_up = ::ioctl(control, SIOCSIFFLAGS, &request) == 0;
  ::close(control);
  return is_up;
}

// A network namespace, user ids and seccomp filters belong to a thread, and end with it.
template <class Body>
void in_own_network(Body body) {
  std::string skipped;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      skipped = std::string("no network namespace of its own: ") + std::strerror(errno);
    } else if (!bring_up_loopback()) {
      skipped = std::string("no loopback: ") + std::strerror(errno);
    } else {
      body();
    }
  }).join();
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

inline void write_sysctl(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/" + name);
  file << value << std::flush;
  EXPECT_TRUE(file.good()) << name << " cannot be set to " << value;
}

// The system call changes only this thread; glibc's function would change the whole process.
inline void become_nobody() { ASSERT_EQ(::syscall(SYS_setresuid, 65534, 65534, 65534), 0); }

// Makes socket(AF_INET6, ...) fail as on a kernel with ipv6.disable=1.
inline void refuse_ipv6_sockets() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),  // the low half, on little-endian machines
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = static_cast<unsigned short>(std::size(filter)), .filter = filter};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0), 0);
}

}  // namespace bootstrap
