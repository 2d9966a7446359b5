// A store that fails the way real ones do, on command: for tests.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "store/forwarding_store.h"
#include "store/memory_store.h"

namespace deltawire {

enum class StoreOperation : uint8_t {
  kPut,
  kPutIfAbsent,
  kStat,
  kGet,
  kRead,
  kDownload,
  kList,
  kRemove,
};
inline constexpr std::string_view kStoreOperations[] = {"put",  "put_if_absent", "stat", "get",
                                                        "read", "download",      "list", "remove"};
inline std::string_view store_operation_name(StoreOperation operation) noexcept {
  return kStoreOperations[size_t(operation)];
}

enum class FaultKind : uint8_t {
  kFail,         // nothing is done; fails with `code`
  kUnavailable,  // nothing is done; fails with Unavailable, as after a 5xx
  kSlow,         // waits first
  kTear,         // stores the first half, says that all is well
  kLost,         // says that all is well; gone after a crash
  kDuplicate,    // done, but says Unavailable: the answer was lost
  kTwice,        // done twice; the second answer counts
  kLate,         // says Unavailable, and is done some calls later
  kStaleList,    // does not list what happened lately
  kFlip,         // one bit of what is read is wrong
};

struct Fault {
  FaultKind kind = FaultKind::kFail;
  // When. All given conditions must hold; without any, at every call that the fault applies to.
  uint64_t n = 0;      // at the n-th such call only; 0: not given
  double p = 1;        // with this probability,
  uint64_t seed = 1;   // drawn from this seed
  uint64_t times = 0;  // so many times at most; 0: no limit
  // Which objects.
  std::string name;     // names (of a listing: prefixes) that begin so
  uint32_t operations;  // bit i: StoreOperation(i)
  // How.
  Code code = Code::kIo;
  double seconds = 0;  // slow; stale-list: hides what is younger
  uint64_t calls = 0;  // late, stale-list

  bool applies_to(StoreOperation operation) const noexcept {
    return (operations >> unsigned(operation) & 1) != 0;
  }
};

// Parses the text after --inject: "unavailable:p=0.1:seed=3,slow:ms=50,tear:n=4"; docs/testing.md
// has the grammar. InvalidArgument names the mistake.
Result<std::vector<Fault>> parse_faults(std::string_view spec);
// The same as StoreOptions::wrap; null if the text is empty. Mistakes are reported when the store
// is opened.
std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> inject_faults(
    std::string spec);

// Has no local folder: reads there would bypass the faults.
class FaultyStore final : public ForwardingStore {
 public:
  FaultyStore(std::shared_ptr<Store> inner, std::vector<Fault> faults,
              StoreClock clock = real_clock());

  // Simulates a power failure: writes that were acknowledged but lost disappear, late ones never
  // arrive. The end of the process does the same.
  void crash();

  std::string local_folder() const override { return {}; }
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;

 private:
  using Operation = StoreOperation;
  struct Armed {
    Fault fault;
    std::mt19937_64 random;
    uint64_t calls = 0, fired = 0;  // calls that it applied to
  };
  // The faults of one call.
  struct Fate {
    uint64_t call = 0;
    Status failure;
    bool tear = false, lose = false, lose_answer = false, twice = false, flip = false;
    uint64_t late_calls = 0, stale_calls = 0;
    double slow_seconds = 0, stale_seconds = 0;
    uint64_t random = 0;
  };
  struct LateWrite {
    uint64_t due = 0;  // the call before which it is done
    Operation operation = Operation::kPut;
    std::string name, bytes;
  };
  struct Undo {
    uint64_t call = 0;
    std::string name;
    std::optional<ObjectInfo> before;
  };
  // Names that are listed differently than in the inner store; nullopt: not listed.
  using Changes = std::map<std::string, std::optional<ObjectInfo>, std::less<>>;

  Fate next_fate(Operation operation, std::string_view name);
  Fate draw_fate(Operation operation, std::string_view name);
  static bool fires(Armed* armed, Operation operation, std::string_view name);
  void do_late_writes(uint64_t call);
  Status write(Operation operation, std::string_view name, const Body& body);
  Status do_write(Operation operation, std::string_view name, const Body& body, bool lose);
  Status put_unsynced(Operation operation, std::string_view name, const Body& body);
  std::unique_lock<std::mutex> hold_still();
  Store& holder_of(std::string_view name);
  void remember(uint64_t call, std::string_view name);
  Result<Changes> changes_to_list(const Fate& fate, std::string_view prefix);

  const StoreClock clock_;
  std::vector<Armed> armed_;
  bool loses_ = false;           // any fault does
  uint64_t longest_memory_ = 0;  // of any stale list, in calls
  MemoryStore unsynced_;         // acknowledged, but not in the inner store
  std::mutex write_mutex_;       // whether a name is taken is asked of two stores
  std::mutex mutex_;             // what stands below, and armed_
  uint64_t calls_ = 0;
  std::vector<LateWrite> late_;
  std::deque<Undo> undo_;
};

}  // namespace deltawire
