// The program that the layout tests start: really meets the other ranks as PyTorch's TCPStore does, then writes down
// where it ran and what its environment was. Knows nothing of the code under test; its name is layout_probe.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "probe_report.h"

namespace {

using probe::host_name;
using probe::system_error;

using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::seconds(15);
constexpr auto kRetryPause = std::chrono::milliseconds(20);
constexpr std::size_t kMaxLine = 1024;

const Clock::time_point start = Clock::now();

int milliseconds_left() {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(start + kDeadline - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) : 0;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Socket {
 public:
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(other.file_) { other.file_ = -1; }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (file_ >= 0) ::close(file_);
  }
  int file() const { return file_; }

 private:
  int file_;
};

bool wait_to_read(int file) {
  pollfd ready{.fd = file, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, milliseconds_left()) == 1;
}

// Up to and without the newline; empty at the end of the stream or of our time.
std::string read_line(int file) {
  std::string line;
  char byte = 0;
  while (line.size() < kMaxLine && wait_to_read(file) && ::read(file, &byte, 1) == 1) {
    if (byte == '\n') return line;
    line += byte;
  }
  return "";
}

bool write_line(int file, const std::string& line) {
  const auto text = line + "\n";
  return ::send(file, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

struct Addresses {
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
};

// A verdict is "ok", or what went wrong, for people.
std::string resolve(const std::string& name, const std::string& port, Addresses& addresses) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(name.c_str(), port.c_str(), &hints, &addresses.list);
  return error == 0 ? "ok" : "MASTER_ADDR=" + name + " does not resolve: " + ::gai_strerror(error);
}

std::string text_of(const sockaddr* address) {
  char host[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  (void)::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Rank 0 alone can know whether the others will find it: one of its own addresses, and no loopback one.
std::string check_own_address(const std::string& name, const std::string& port) {
  Addresses addresses;
  auto verdict = resolve(name, port, addresses);
  if (verdict != "ok") return verdict;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return system_error("getifaddrs");
  std::set<std::string> own;
  for (const auto* at = interfaces; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    if (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6) own.insert(text_of(at->ifa_addr));
  }
  ::freeifaddrs(interfaces);
  const auto resolved = text_of(addresses.list->ai_addr);
  if (resolved.starts_with("127.") || resolved == "::1") return name + " is a loopback address to rank 0";
  if (own.count(resolved) == 0) return name + " is " + resolved + ", which is not an address of " + host_name();
  return "ok";
}

std::string listen_on(const std::string& port, int& file) {
  file = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (file < 0) return system_error("socket");
  const int off = 0;
  const int on = 1;
  (void)::setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  (void)::setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  any.sin6_port = htons(static_cast<std::uint16_t>(std::atoi(port.c_str())));
  if (::bind(file, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) return system_error("bind to port " + port);
  if (::listen(file, SOMAXCONN) != 0) return system_error("listen on port " + port);
  return "ok";
}

// What every rank sends about itself: "RANK WORLD_SIZE STAMP HOST". All but the first and the last must be equal.
std::string greeting() {
  return variable("RANK") + " " + variable("WORLD_SIZE") + " " + variable("SLURM_BOOTSTRAP_STEP") + " " + host_name();
}

std::string check_greeting(const std::string& line, int size, std::set<int>& seen) {
  char world[kMaxLine + 1] = "";
  char step_tag[kMaxLine + 1] = "";
  int rank = -1;
  if (std::sscanf(line.c_str(), "%d %1024s %1024s", &rank, world, step_tag) != 3) return "unreadable greeting: " + line;
  if (world != variable("WORLD_SIZE")) return "another WORLD_SIZE came: " + line;
  if (step_tag != variable("SLURM_BOOTSTRAP_STEP")) return "a rank of another step came: " + line;
  if (rank < 1 || rank >= size) return "a rank outside the step came: " + line;
  if (!seen.insert(rank).second) return "the same rank came twice: " + line;
  return "ok";
}

std::string serve(int size) {
  const auto address = check_own_address(variable("MASTER_ADDR"), variable("MASTER_PORT"));
  if (address != "ok") return address;
  int file = -1;
  auto verdict = listen_on(variable("MASTER_PORT"), file);
  const Socket listener(file);
  std::vector<Socket> peers;
  std::set<int> seen;
  while (verdict == "ok" && static_cast<int>(peers.size()) < size - 1) {
    if (!wait_to_read(listener.file())) {
      verdict = "only " + std::to_string(peers.size()) + " of " + std::to_string(size - 1) + " ranks came";
      break;
    }
    peers.emplace_back(::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC));
    verdict = check_greeting(read_line(peers.back().file()), size, seen);
  }
  for (const auto& peer : peers) (void)write_line(peer.file(), verdict);
  return verdict;
}

std::string try_to_meet(const addrinfo& address, bool& is_refused) {
  const Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{.tv_sec = milliseconds_left() / 1000 + 1, .tv_usec = 0};
  (void)::setsockopt(socket.file(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket.file(), address.ai_addr, address.ai_addrlen) != 0) {
    is_refused = errno == ECONNREFUSED;
    return system_error("connect to " + variable("MASTER_ADDR") + ":" + variable("MASTER_PORT"));
  }
  if (!write_line(socket.file(), greeting())) return system_error("send to rank 0");
  const auto answer = read_line(socket.file());
  return answer.empty() ? "rank 0 did not answer" : answer;
}

std::string join() {
  Addresses addresses;
  const auto resolved = resolve(variable("MASTER_ADDR"), variable("MASTER_PORT"), addresses);
  if (resolved != "ok") return resolved;
  while (true) {
    bool is_refused = false;
    auto verdict = try_to_meet(*addresses.list, is_refused);
    if (!is_refused || milliseconds_left() == 0) return verdict;
    std::this_thread::sleep_for(kRetryPause);
  }
}

std::string meet() {
  for (const auto* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_BOOTSTRAP_STEP"}) {
    if (variable(name).empty()) return std::string(name) + " is not set";
  }
  const int size = std::atoi(variable("WORLD_SIZE").c_str());
  return variable("RANK") == "0" ? serve(size) : join();
}

// The rule that launch scripts use: the first host of the list, and a port from nothing but the job's number. Shows
// that the meeting fails where the rule is wrong.
void be_naive() {
  const auto list = variable("SLURM_STEP_NODELIST");
  auto first = list.substr(0, list.find_first_of(",]-"));
  const auto bracket = first.find('[');
  if (bracket != std::string::npos) first.erase(bracket, 1);
  ::setenv("MASTER_ADDR", first.c_str(), 1);
  ::setenv("MASTER_PORT", std::to_string(10000 + std::atoi(variable("SLURM_JOB_ID").c_str()) % 20000).c_str(), 1);
}

}  // namespace

// layout_probe FOLDER [naive | alone]
int main(int count, char** arguments) {
  const std::string folder = count > 1 ? arguments[1] : ".";
  const std::string how = count > 2 ? arguments[2] : "";
  if (how == "naive") be_naive();
  const auto verdict = how == "alone" ? "ok" : meet();
  if (!probe::write_report(folder, {{"verdict", verdict}})) {
    std::fprintf(stderr, "layout_probe: %s\n", system_error("write the report to " + folder).c_str());
    return 1;
  }
  if (verdict != "ok") std::fprintf(stderr, "layout_probe: rank %s: %s\n", variable("RANK").c_str(), verdict.c_str());
  return verdict == "ok" ? 0 : 1;
}
