#include "faults/faulty_store.h"

#include <algorithm>
#include <ctime>

#include "store/bodies.h"

namespace deltawire {
namespace {

// The part of a torn write that reaches the disk.
class FirstHalf final : public Body {
 public:
  explicit FirstHalf(const Body& inner) : inner_(inner) {}
  uint64_t size() const noexcept override { return inner_.size() / 2; }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    return inner_.read(offset, out);
  }

 private:
  const Body& inner_;
};

// Flips one bit of `bytes`, if it lies there: bit `random` of an object of `size` bytes, of
// which these begin at `offset`.
void flip_bit(uint64_t random, uint64_t size, uint64_t offset, std::span<uint8_t> bytes) {
  if (size == 0) return;
  const uint64_t at = random / 8 % size;
  if (at >= offset && at - offset < bytes.size()) bytes[at - offset] ^= uint8_t(1 << random % 8);
}

class FlippingSink final : public Sink {
 public:
  FlippingSink(Sink* inner, uint64_t random, uint64_t size)
      : inner_(inner), random_(random), size_(size) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    std::vector<uint8_t> copy(bytes.begin(), bytes.end());
    flip_bit(random_, size_, offset, copy);
    return inner_->write(offset, copy);
  }

 private:
  Sink* const inner_;
  const uint64_t random_, size_;
};

}  // namespace

FaultyStore::FaultyStore(std::shared_ptr<Store> inner, std::vector<Fault> faults, StoreClock clock)
    : ForwardingStore(std::move(inner)), clock_(std::move(clock)), unsynced_("unsynced") {
  for (Fault& fault : faults) {
    loses_ = loses_ || fault.kind == FaultKind::kLost;
    if (fault.kind == FaultKind::kStaleList) {
      longest_memory_ = std::max(longest_memory_, fault.calls);
    }
    std::mt19937_64 random(fault.seed);
    armed_.push_back({std::move(fault), random});
  }
}

void FaultyStore::crash() {
  {
    const std::lock_guard lock(mutex_);
    late_.clear();
    undo_.clear();
  }
  std::vector<std::string> names;
  static_cast<void>(list_all(unsynced_, "", "", [&](const ObjectInfo& object) {
    names.push_back(object.name);
    return true;
  }));
  for (const std::string& name : names) static_cast<void>(unsynced_.remove(name));
}

bool FaultyStore::fires(Armed* armed, Operation operation, std::string_view name) {
  const Fault& fault = armed->fault;
  if (!fault.applies_to(operation) || !name.starts_with(fault.name)) return false;
  ++armed->calls;
  const bool drawn = fault.p >= 1 || double(armed->random() >> 11) * 0x1p-53 < fault.p;
  if (!drawn || (fault.n != 0 && armed->calls != fault.n)) return false;
  if (fault.times != 0 && armed->fired == fault.times) return false;
  ++armed->fired;
  return true;
}

FaultyStore::Fate FaultyStore::draw_fate(Operation operation, std::string_view name) {
  Fate fate;
  const std::lock_guard lock(mutex_);
  fate.call = ++calls_;
  const auto fail = [&](Code code) {
    fate.failure = {code, url() + ": " + std::string(store_operation_name(operation)) + " " +
                              std::string(name) + ": injected fault"};
  };
  for (Armed& armed : armed_) {
    if (!fires(&armed, operation, name)) continue;
    const Fault& fault = armed.fault;
    switch (fault.kind) {
      case FaultKind::kFail:
        fail(fault.code);
        break;
      case FaultKind::kUnavailable:
        fail(Code::kUnavailable);
        break;
      case FaultKind::kSlow:
        fate.slow_seconds += fault.seconds;
        break;
      case FaultKind::kTear:
        fate.tear = true;
        break;
      case FaultKind::kLost:
        fate.lose = true;
        break;
      case FaultKind::kDuplicate:
        fate.lose_answer = true;
        break;
      case FaultKind::kTwice:
        fate.twice = true;
        break;
      case FaultKind::kLate:
        fate.late_calls = fault.calls;
        break;
      case FaultKind::kStaleList:
        fate.stale_calls = std::max(fate.stale_calls, fault.calls);
        fate.stale_seconds = std::max(fate.stale_seconds, fault.seconds);
        break;
      case FaultKind::kFlip:
        fate.flip = true;
        fate.random = armed.random();
        break;
    }
  }
  return fate;
}

FaultyStore::Fate FaultyStore::next_fate(Operation operation, std::string_view name) {
  Fate fate = draw_fate(operation, name);
  if (fate.slow_seconds > 0) clock_.sleep(fate.slow_seconds);
  do_late_writes(fate.call);
  return fate;
}

void FaultyStore::do_late_writes(uint64_t call) {
  std::vector<LateWrite> due;
  {
    const std::lock_guard lock(mutex_);
    const auto is_later = [&](const LateWrite& write) { return write.due > call; };
    const auto end = std::stable_partition(late_.begin(), late_.end(), is_later);
    due.assign(std::make_move_iterator(end), std::make_move_iterator(late_.end()));
    late_.erase(end, late_.end());
  }
  for (const LateWrite& write : due) {
    // Nobody waits for the result any more.
    static_cast<void>(do_write(write.operation, write.name, MemoryBody(write.bytes), false));
  }
}

Status FaultyStore::put(std::string_view name, const Body& body) {
  return write(Operation::kPut, name, body);
}

Status FaultyStore::put_if_absent(std::string_view name, const Body& body) {
  return write(Operation::kPutIfAbsent, name, body);
}

Status FaultyStore::remove(std::string_view name) {
  return write(Operation::kRemove, name, MemoryBody(""));
}

Status FaultyStore::write(Operation operation, std::string_view name, const Body& body) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const Fate fate = next_fate(operation, name);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  const auto answer_lost = [&] {
    return unavailable(url() + ": " + std::string(store_operation_name(operation)) + " " +
                       std::string(name) + ": injected fault: the answer was lost");
  };
  if (fate.late_calls != 0) {
    LateWrite late{fate.call + fate.late_calls, operation, std::string(name), {}};
    DW_ASSIGN_OR_RETURN(late.bytes, text_of_body(body));
    const std::lock_guard lock(mutex_);
    late_.push_back(std::move(late));
    return answer_lost();
  }
  remember(fate.call, name);
  const FirstHalf half(body);
  const Body& sent = fate.tear ? half : body;
  Status status = do_write(operation, name, sent, fate.lose);
  if (fate.twice) status = do_write(operation, name, sent, fate.lose);
  return fate.lose_answer ? answer_lost() : status;
}

Status FaultyStore::do_write(Operation operation, std::string_view name, const Body& body,
                             bool lose) {
  const std::unique_lock<std::mutex> lock = hold_still();
  if (lose) return put_unsynced(operation, name, body);
  if (operation == Operation::kPutIfAbsent) {
    if (loses_ && unsynced_.stat(name).ok()) return unsynced_.put_if_absent(name, body);
    return inner().put_if_absent(name, body);
  }
  DW_RETURN_IF_ERROR(operation == Operation::kPut ? inner().put(name, body) : inner().remove(name));
  return unsynced_.remove(name);
}

Status FaultyStore::put_unsynced(Operation operation, std::string_view name, const Body& body) {
  if (operation == Operation::kPut) return unsynced_.put(name, body);
  const Result<ObjectInfo> taken = inner().stat(name);
  if (taken.ok()) return conflict(url() + ": object " + std::string(name) + " is already there");
  if (taken.status().code() != Code::kNotFound) return taken.status();
  return unsynced_.put_if_absent(name, body);
}

// While unsynced writes are kept separately, an object may move from one store to the other.
std::unique_lock<std::mutex> FaultyStore::hold_still() {
  return loses_ ? std::unique_lock(write_mutex_) : std::unique_lock<std::mutex>();
}

Store& FaultyStore::holder_of(std::string_view name) {
  return loses_ && unsynced_.stat(name).ok() ? unsynced_ : inner();
}

Result<ObjectInfo> FaultyStore::stat(std::string_view name) {
  const Fate fate = next_fate(Operation::kStat, name);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  const auto lock = hold_still();
  return holder_of(name).stat(name);
}

Result<std::string> FaultyStore::get(std::string_view name, uint64_t max_bytes) {
  const Fate fate = next_fate(Operation::kGet, name);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  const auto lock = hold_still();
  DW_ASSIGN_OR_RETURN(std::string text, holder_of(name).get(name, max_bytes));
  if (fate.flip) {
    flip_bit(fate.random, text.size(), 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  }
  return text;
}

Status FaultyStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  const Fate fate = next_fate(Operation::kRead, name);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  const auto lock = hold_still();
  DW_RETURN_IF_ERROR(holder_of(name).read(name, offset, out));
  if (fate.flip) flip_bit(fate.random, out.size(), 0, out);
  return {};
}

Status FaultyStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  const Fate fate = next_fate(Operation::kDownload, name);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  FlippingSink flipping(sink, fate.random, size_bytes);
  const auto lock = hold_still();
  return holder_of(name).download(name, size_bytes, fate.flip ? &flipping : sink);
}

void FaultyStore::remember(uint64_t call, std::string_view name) {
  if (longest_memory_ == 0) return;
  const Result<ObjectInfo> before = holder_of(name).stat(name);
  const std::lock_guard lock(mutex_);
  while (!undo_.empty() && undo_.front().call + longest_memory_ < calls_) undo_.pop_front();
  undo_.push_back({call, std::string(name), before.ok() ? std::optional(*before) : std::nullopt});
}

Result<FaultyStore::Changes> FaultyStore::changes_to_list(const Fate& fate,
                                                          std::string_view prefix) {
  Changes changes;
  if (loses_) {
    DW_RETURN_IF_ERROR(list_all(unsynced_, prefix, "", [&](const ObjectInfo& object) {
      changes[object.name] = object;
      return true;
    }));
  }
  if (fate.stale_calls != 0) {
    const std::lock_guard lock(mutex_);
    for (auto at = undo_.rbegin(); at != undo_.rend(); ++at) {  // from the newest
      const bool lately = at->call + fate.stale_calls > fate.call;
      if (lately && at->name.starts_with(prefix)) changes[at->name] = at->before;
    }
  }
  return changes;
}

Result<std::vector<ObjectInfo>> FaultyStore::list(std::string_view prefix,
                                                  std::string_view start_after, size_t limit) {
  DW_RETURN_IF_ERROR(check_object_prefix(prefix));
  const Fate fate = next_fate(Operation::kList, prefix);
  DW_RETURN_IF_ERROR(Status(fate.failure));
  DW_ASSIGN_OR_RETURN(const Changes changes, changes_to_list(fate, prefix));
  if (changes.empty() && fate.stale_seconds == 0) return inner().list(prefix, start_after, limit);

  limit = std::min(limit, kMaxListed);
  std::vector<ObjectInfo> found;
  const auto add = [&](const std::optional<ObjectInfo>& object) {
    const double newest = double(std::time(nullptr)) - fate.stale_seconds;
    const bool young = fate.stale_seconds != 0 && object && double(object->modified) > newest;
    if (object && !young && found.size() < limit) found.push_back(*object);
  };
  auto change = changes.upper_bound(start_after);
  DW_RETURN_IF_ERROR(list_all(inner(), prefix, start_after, [&](const ObjectInfo& object) {
    for (; change != changes.end() && change->first < object.name; ++change) add(change->second);
    const bool changed = change != changes.end() && change->first == object.name;
    add(changed ? (change++)->second : object);
    return found.size() < limit;
  }));
  for (; change != changes.end(); ++change) add(change->second);
  return found;
}

}  // namespace deltawire
