// PMIx without linking: the few calls that are used, of the libpmix that the process has loaded, or of the system.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/pmix_library.h"

#include <dlfcn.h>
#include <pmix.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "comm/exchange_engine.h"
#include "core/util/text.h"
#include "probe/own_process.h"
#include "probe/read_environment.h"

namespace bootstrap::pmix {

static_assert(kSuccess == PMIX_SUCCESS);

namespace {

// Owns what libpmix does not copy and reads until it answers.
struct Request : Answer {
  pmix_proc_t target{};
  std::string key;
  std::function<void()> then;

  void set(Code status, const pmix_value_t* value) {
    std::unique_lock lock(mutex);
    if (is_there) return;
    code = status;
    if (status == PMIX_SUCCESS && value != nullptr) {
      try {
        if (value->type == PMIX_BYTE_OBJECT) bytes.assign(value->data.bo.bytes, value->data.bo.size);
      } catch (const std::exception&) {  // libpmix is C, and calls us
        code = PMIX_ERR_NOMEM;
      }
    }
    is_there = true;
    lock.unlock();  // else the waiting thread wakes up and waits for the lock
    changed.notify_all();
  }
};

// Never deleted: callbacks of an abandoned session may come until the process ends.
struct Library {
  Symbols find;
  decltype(&PMIx_Get_version) get_version = find("PMIx_Get_version");
  decltype(&PMIx_Initialized) initialized = find("PMIx_Initialized");
  decltype(&PMIx_Init) init = find("PMIx_Init");
  decltype(&PMIx_Finalize) finalize = find("PMIx_Finalize");
  decltype(&PMIx_Put) put = find("PMIx_Put");
  decltype(&PMIx_Commit) commit = find("PMIx_Commit");
  decltype(&PMIx_Fence_nb) fence = find("PMIx_Fence_nb");
  decltype(&PMIx_Get_nb) get = find("PMIx_Get_nb");
  decltype(&PMIx_Error_string) error_string = find("PMIx_Error_string");
  std::string version = {};
};
std::atomic<const Library*> loaded{nullptr};

constexpr const char* kLibrary = "libpmix.so.2";  // the SONAME of PMIx 3, 4, 5 and 6

// Null if the process has not loaded it. dlopen(3) alone would read the file even then.
void* loaded_by_program() {
  return is_loaded("libpmix") ? ::dlopen(kLibrary, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL) : nullptr;
}

// A call keeps its request until the answer comes, which may be long after the wait for it has ended. Without an answer
// it keeps the request until the process ends: some hundred bytes in a step that fails.
using Reference = std::shared_ptr<Request>;

Reference take_reference(void* pointer) { return *std::unique_ptr<Reference>(static_cast<Reference*>(pointer)); }

extern "C" void fence_is_done(pmix_status_t status, void* pointer) {
  const auto request = take_reference(pointer);
  try {
    if (status == PMIX_SUCCESS) request->then();
  } catch (const std::exception&) {  // libpmix is C, and calls us
    status = PMIX_ERR_NOMEM;
  }
  request->set(status, nullptr);
}

extern "C" void value_is_there(pmix_status_t status, pmix_value_t* value, void* pointer) {
  take_reference(pointer)->set(status, value);
}

// PMIx calls back only if the call itself returned PMIX_SUCCESS. The call may also be done at once.
SharedAnswer started(Code code, const Reference& request, void* reference) {
  if (code != PMIX_SUCCESS) {
    (void)take_reference(reference);
    request->set(code == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : code, nullptr);
  }
  return request;
}

// Never freed: calls may use it until the process ends.
const pmix_info_t* flag(const char* key) {
  auto* info = new pmix_info_t;
  std::memset(info, 0, sizeof *info);
  std::memcpy(info->key, key, std::strlen(key));
  info->value.type = PMIX_BOOL;
  info->value.data.flag = true;
  return info;
}

// "OpenPMIx 4.2.2rc2, repo rev: ..." is "4.2.2rc2".
std::string short_version(const char* text) {
  for (const auto word : split(text == nullptr ? "" : text, ' ')) {
    if (!word.empty() && is_digit(word.front())) {
      return std::string(word.substr(0, word.find(',')));
    }
  }
  return "of unknown version";
}

}  // namespace

bool Answer::wait_until(Deadline deadline) {
  if (released_in_waits != nullptr) released_in_waits->unlock();
  std::unique_lock lock(mutex);
  const bool has_come = changed.wait_until(lock, deadline, [this] { return is_there; });
  lock.unlock();
  if (released_in_waits != nullptr) released_in_waits->lock();
  return has_come;
}

Status load() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return {};
  void* library = loaded_by_program();
  const auto file = trusted_settings(process_environment()).pmix_file.value;
  const char* const name = file.empty() ? kLibrary : file.c_str();
  if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return fail(ErrorCode::kUnavailable,
                cat({"cannot load PMIx: ", reason == nullptr ? name : reason,
                     "; install it (Debian: libpmix2), or set SLURM_BOOTSTRAP_PMIX to its file"}));
  }
  std::unique_ptr<Library> pmix(new Library{{library}});
  if (!pmix->find.is_whole) {
    return fail(ErrorCode::kUnsupported,
                cat({"the PMIx library ", name, " does not have all functions of PMIx 3; use PMIx 3 or newer"}));
  }
  pmix->version = short_version(pmix->get_version());
  loaded = pmix.release();
  return {};
}

const std::string& version() { return loaded.load()->version; }

// For a value of a rank of this node without a fence. PMIx 4 with ds21 reads the server's memory each time. hash, which
// all other versions use and PMIx 4 can be set to, has a table in each session.
bool keeps_what_it_read() {
  const char* chosen = std::getenv("PMIX_MCA_gds");
  const auto major = parse_unsigned(std::string_view(version()).substr(0, version().find('.')), UINT32_MAX);
  return !major || *major != 4 || (chosen != nullptr && std::string_view(chosen) == "hash");
}

bool is_initialized() { return loaded.load()->initialized() != 0; }

Result<Identity> init(std::string_view whose) {
  pmix_proc_t self;
  std::memset(&self, 0, sizeof self);
  const Code code = loaded.load()->init(&self, nullptr, 0);
  if (code != PMIX_SUCCESS) {
    return fail(ErrorCode::kUnavailable,
                cat({"PMIx ", version(), " cannot connect to ", whose, " server on this node: ", describe(code)}));
  }
  return Identity{std::string(self.nspace, ::strnlen(self.nspace, sizeof self.nspace)), self.rank};
}

void finish() { (void)loaded.load()->finalize(nullptr, 0); }

Status put(Scope scope, const std::string& key, std::string_view bytes) {
  pmix_value_t value;
  std::memset(&value, 0, sizeof value);
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(bytes.data());  // PMIx copies it
  value.data.bo.size = bytes.size();
  auto code = loaded.load()->put(scope == Scope::kNode ? PMIX_LOCAL : PMIX_GLOBAL, key.c_str(), &value);
  const auto call =
      code == PMIX_SUCCESS ? "PMIx_Commit" : cat({"PMIx_Put of ", std::to_string(bytes.size()), " bytes"});
  if (code == PMIX_SUCCESS) code = loaded.load()->commit();
  if (code == PMIX_SUCCESS) return {};
  return fail(ErrorCode::kUnavailable, cat({call, " failed: ", describe(code)}));
}

SharedAnswer fence(std::function<void()> then) {
  // Without this key Slurm's server leaves the data on its node; it ignores the key's value.
  static const pmix_info_t* const collect = flag(PMIX_COLLECT_DATA);
  const auto request = std::make_shared<Request>();
  request->then = std::move(then);
  void* reference = new Reference(request);
  return started(loaded.load()->fence(nullptr, 0, collect, 1, fence_is_done, reference), request, reference);
}

SharedAnswer get(const Identity& self, std::uint32_t rank, const std::string& key, bool at_once) {
  static const pmix_info_t* const immediate = flag(PMIX_IMMEDIATE);
  const auto request = std::make_shared<Request>();
  self.name_space.copy(request->target.nspace, sizeof request->target.nspace - 1);
  request->target.rank = rank;
  request->key = key;
  void* reference = new Reference(request);
  return started(loaded.load()->get(&request->target, request->key.c_str(), at_once ? immediate : nullptr,
                                    at_once ? 1 : 0, value_is_there, reference),
                 request, reference);
}

std::string describe(Code code) {
  const char* text = loaded.load()->error_string(code);
  return cat({text == nullptr ? "error" : text, " (", std::to_string(code), ")"});
}

}  // namespace bootstrap::pmix

namespace bootstrap {

bool has_own_pmix() {
  void* const library = pmix::loaded_by_program();
  if (library == nullptr) return false;
  const decltype(&PMIx_Initialized) initialized = Symbols{library}.if_there("PMIx_Initialized");
  const bool has_session = initialized != nullptr && initialized() != 0;
  (void)::dlclose(library);
  return has_session;
}

Result<std::string> pmix_version() {
  if (auto status = pmix::load(); !status) return fail(status.error());
  return pmix::version();
}

}  // namespace bootstrap
