#include "store/probe.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/text.h"
#include "store/pieces.h"

namespace deltawire {
namespace {

constexpr int64_t kAbandonedSeconds = 3600;
constexpr size_t kRangeBytes = 4096;
constexpr size_t kIdDigits = 16;
constexpr std::string_view kFirst = "first probe of deltawire doctor\n";
constexpr std::string_view kSecond = "other probe of deltawire doctor\n";

// Bytes that neither server nor link can compress.
std::vector<uint8_t> random_bytes() {
  std::vector<uint8_t> bytes(kProbeBytes);
  std::mt19937_64 random{std::random_device{}()};
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&bytes[i], &word, sizeof word);
  }
  return bytes;
}

// Other objects under the prefix are not removed.
bool is_probe(const ObjectInfo& object) {
  const auto path = split_text(std::string_view(object.name).substr(kProbePrefix.size()), '/');
  if (path.size() != 2 || path[0].size() != kIdDigits || !is_hex(path[0])) return false;
  const uint64_t size = object.size_bytes;
  return path[1] == "small" ? size == kFirst.size() || size == kSecond.size()
                            : path[1] == "large" && size <= kProbeBytes;
}

class Probe {
 public:
  Probe(Store& store, const std::function<bool()>& stop)
      : store_(store),
        stop_(stop),
        folder_(std::string(kProbePrefix) + random_hex(kIdDigits) + "/") {}

  // Starts with a small object, so that a key without the right to delete leaves no large one.
  ProbeReport run() && {
    if (!try_step("write", &Probe::write)) {
      if (may_be_there_) static_cast<void>(store_.remove(small_));  // put, and the answer was lost
      return std::move(report_);
    }
    if (report_.put_if_absent) try_step("put if absent", &Probe::put_second);
    try_step("read", &Probe::read);
    try_step("list", &Probe::list);
    add_step("delete", remove_small());
    if (report_.steps.back().status.ok()) {
      try_step("transfer", &Probe::transfer);
      if (const Status gone = remove(large_); !gone.ok()) add_step("delete", gone);
    }
    return std::move(report_);
  }

 private:
  using Outcome = Result<std::string>;  // the detail of a successful step

  void add_step(const char* what, Outcome outcome) {
    report_.steps.push_back({what, outcome.status(), outcome.ok() ? *outcome : ""});
  }
  bool try_step(const char* what, Outcome (Probe::*step)()) {
    if (stopped_) return false;
    stopped_ = stop_();
    add_step(what, stopped_ ? cancelled("stopped on request") : (this->*step)());
    return report_.steps.back().status.ok();
  }
  Status wrong(const std::string& name, const std::string& what) const {
    return corruption(store_.url() + "/" + name + ": " + what);
  }

  Outcome write() {
    DW_ASSIGN_OR_RETURN(const Capabilities can, store_.capabilities());
    report_.put_if_absent = can.put_if_absent;
    may_be_there_ = true;
    const MemoryBody first(kFirst);
    const int64_t before = unix_seconds();
    DW_RETURN_IF_ERROR(can.put_if_absent ? store_.put_if_absent(small_, first)
                                         : store_.put(small_, first));
    DW_ASSIGN_OR_RETURN(const ObjectInfo info, store_.stat(small_));
    now_ = info.modified;
    const int64_t after = unix_seconds();
    if (now_ > 0) {  // cut to a second
      report_.clock_ahead = now_ > after ? now_ - after : std::min<int64_t>(0, now_ + 1 - before);
    }
    return std::string("objects can be put");
  }

  Outcome put_second() {
    const Status second = store_.put_if_absent(small_, MemoryBody(kSecond));
    if (second.code() == Code::kConflict) return std::string("a second put of one name is refused");
    if (!second.ok()) return second;
    return unsupported(store_.url() +
                       ": a second put of one name, only if it is absent, was not refused: two "
                       "publishers could overwrite each other's versions");
  }

  Outcome read() {
    DW_ASSIGN_OR_RETURN(const std::string text, store_.get(small_, 1000));
    if (text != kFirst && text != kSecond) return wrong(small_, "holds other bytes than were put");
    return std::string("what was put comes back");
  }

  Outcome list() {
    DW_ASSIGN_OR_RETURN(const auto found, store_.list(folder_, "", kMaxListed));
    if (found.size() == 1 && found[0].name == small_ && found[0].size_bytes == kFirst.size()) {
      return std::string("an object is listed once it was put");
    }
    return unavailable(store_.url() + "/" + small_ +
                       ": was just put, and is not listed: this store shows objects late");
  }

  Outcome remove_small() {
    DW_RETURN_IF_ERROR(remove(small_));
    const Result<ObjectInfo> after = store_.stat(small_);
    if (after.ok()) return wrong(small_, "was removed, and is still there");
    if (after.status().code() != Code::kNotFound) return after.status();
    DW_ASSIGN_OR_RETURN(const size_t abandoned, remove_abandoned());
    if (abandoned == 0) return std::string("objects can be removed");
    return "objects can be removed; removed " + std::to_string(abandoned) +
           " that killed calls of doctor had left";
  }
  Status remove(const std::string& name) {
    const Status status = store_.remove(name);
    if (status.ok()) return status;
    return Status(status.code(), status.message() + "; " + name + " may stay in the store");
  }

  Outcome transfer() {
    const std::vector<uint8_t> bytes = random_bytes();
    double start = steady_seconds();
    DW_RETURN_IF_ERROR(store_.put(large_, MemoryBody(bytes)));
    report_.put_seconds = steady_seconds() - start;
    std::vector<uint8_t> got(bytes.size());
    SpanSink sink(got);
    start = steady_seconds();
    DW_RETURN_IF_ERROR(store_.download(large_, got.size(), &sink));
    report_.get_seconds = steady_seconds() - start;
    if (got != bytes) return wrong(large_, "holds other bytes than were put");
    const size_t at = bytes.size() / 3;
    std::vector<uint8_t> range(kRangeBytes);
    DW_RETURN_IF_ERROR(store_.read(large_, at, range));
    if (!std::equal(range.begin(), range.end(), bytes.begin() + ptrdiff_t(at))) {
      return wrong(large_, "a range of it has other bytes than were put");
    }
    return std::string("whole objects and ranges of them are right");
  }

  // By the store's clock, as the time of this probe's own object shows it.
  Result<size_t> remove_abandoned() {
    if (now_ == 0 || stopped_) return size_t{0};
    DW_ASSIGN_OR_RETURN(const auto found, store_.list(kProbePrefix, "", kMaxListed));
    size_t removed = 0;
    for (const ObjectInfo& object : found) {
      if (!is_probe(object) || object.modified == 0 || object.modified > now_ - kAbandonedSeconds)
        continue;
      DW_RETURN_IF_ERROR(store_.remove(object.name));
      ++removed;
    }
    return removed;
  }

  Store& store_;
  const std::function<bool()>& stop_;
  const std::string folder_, small_ = folder_ + "small", large_ = folder_ + "large";
  ProbeReport report_;
  bool may_be_there_ = false, stopped_ = false;
  int64_t now_ = 0;  // by the store's clock
};

}  // namespace

ProbeReport probe_store(Store& store, const std::function<bool()>& stop) {
  return Probe(store, stop).run();
}

}  // namespace deltawire
