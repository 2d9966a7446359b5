#include "faults/faulty_store.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

#include "base/text.h"

namespace deltawire {
namespace {

constexpr uint32_t bit(StoreOperation operation) { return uint32_t{1} << unsigned(operation); }
constexpr uint32_t kWrites = bit(StoreOperation::kPut) | bit(StoreOperation::kPutIfAbsent);
constexpr uint32_t kReads =
    bit(StoreOperation::kGet) | bit(StoreOperation::kRead) | bit(StoreOperation::kDownload);
constexpr uint32_t kLists = bit(StoreOperation::kList);
constexpr uint32_t kRemoves = bit(StoreOperation::kRemove);
constexpr uint32_t kAll = (uint32_t{1} << std::size(kStoreOperations)) - 1;

struct Kind {
  std::string_view name;
  FaultKind kind;
  uint32_t operations;         // that it can befall
  std::string_view must, may;  // keys of its own
};
constexpr Kind kKinds[] = {
    {"fail", FaultKind::kFail, kAll, "", "code"},
    {"unavailable", FaultKind::kUnavailable, kAll, "", ""},
    {"slow", FaultKind::kSlow, kAll, "ms", ""},
    {"tear", FaultKind::kTear, kWrites, "", ""},
    {"lost", FaultKind::kLost, kWrites, "", ""},
    {"duplicate", FaultKind::kDuplicate, kWrites | kRemoves, "", ""},
    {"twice", FaultKind::kTwice, kWrites | kRemoves, "", ""},
    {"late", FaultKind::kLate, kWrites | kRemoves, "calls", ""},
    {"stale-list", FaultKind::kStaleList, kLists, "", "calls seconds"},
    {"flip", FaultKind::kFlip, kReads, "", ""},
};

constexpr std::string_view kCommonKeys = "n p seed times op name";

bool has_word(std::string_view words, std::string_view word) {
  const auto all = split_text(words, ' ');
  return !word.empty() && std::find(all.begin(), all.end(), word) != all.end();
}

// "i/o error" is i-o-error, "put_if_absent" put-if-absent.
std::string spelt_with_dashes(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? c : '-';
  return out;
}

std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

template <class T>
Status parse_number(std::string_view text, T low, T high, T* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error == std::errc() && end == text.data() + text.size() && *out >= low && *out <= high) {
    return {};
  }
  char range[64];
  std::snprintf(range, sizeof range, " is not a number from %g to %g", double(low), double(high));
  return invalid_argument(quoted(text) + range);
}

Status parse_code(std::string_view text, Code* out) {
  for (int code = int(Code::kInvalidArgument); code <= int(Code::kInternal); ++code) {
    if (spelt_with_dashes(code_name(Code(code))) == text) return *out = Code(code), Status();
  }
  return invalid_argument("there is no failure " + quoted(text) + "; e.g. i-o-error, not-found");
}

Status parse_operations(const Kind& kind, std::string_view text, uint32_t* out) {
  *out = 0;
  for (const std::string_view name : split_text(text, '+')) {
    uint32_t found = 0;
    for (size_t i = 0; i < std::size(kStoreOperations); ++i) {
      const StoreOperation operation{uint8_t(i)};
      if (spelt_with_dashes(store_operation_name(operation)) == name) found = bit(operation);
    }
    if (found == 0) return invalid_argument("there is no operation " + quoted(name));
    if ((kind.operations & found) == 0) {
      return invalid_argument("cannot befall operation " + quoted(name));
    }
    *out |= found;
  }
  return {};
}

Status parse_key(const Kind& kind, std::string_view key, std::string_view value, Fault* fault) {
  constexpr uint64_t kMost = 1'000'000'000;
  if (key == "n") return parse_number<uint64_t>(value, 1, kMost, &fault->n);
  if (key == "p") return parse_number<double>(value, 0, 1, &fault->p);
  if (key == "seed") return parse_number<uint64_t>(value, 0, kMost, &fault->seed);
  if (key == "times") return parse_number<uint64_t>(value, 1, kMost, &fault->times);
  if (key == "op") return parse_operations(kind, value, &fault->operations);
  if (key == "name") {
    fault->name = value;
    return check_object_prefix(value);
  }
  if (key == "code") return parse_code(value, &fault->code);
  if (key == "calls") return parse_number<uint64_t>(value, 1, kMost, &fault->calls);
  DW_RETURN_IF_ERROR(parse_number<double>(value, 0, kMost, &fault->seconds));
  if (key == "ms") fault->seconds /= 1000;
  return {};
}

Result<Fault> parse_fault(std::string_view text) {
  const std::vector<std::string_view> pieces = split_text(text, ':');
  const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const Kind& known) { return known.name == pieces[0]; });
  if (kind == std::end(kKinds)) {
    std::string all;
    for (const Kind& known : kKinds) all += (all.empty() ? "" : ", ") + std::string(known.name);
    return invalid_argument("there is no fault " + quoted(pieces[0]) + "; there are " + all);
  }
  Fault fault;
  fault.kind = kind->kind;
  fault.operations = kind->operations;
  std::string given;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const size_t equals = pieces[i].find('=');
    if (equals == std::string_view::npos) {
      return invalid_argument("expected KEY=VALUE, got " + quoted(pieces[i]));
    }
    const std::string_view key = pieces[i].substr(0, equals);
    if (!has_word(kCommonKeys, key) && !has_word(kind->must, key) && !has_word(kind->may, key)) {
      return invalid_argument("has no key " + quoted(key));
    }
    if (has_word(given, key)) return invalid_argument("has key " + quoted(key) + " twice");
    (given += ' ') += key;
    Status status = parse_key(*kind, key, pieces[i].substr(equals + 1), &fault);
    if (!status.ok()) return std::move(status).at(std::string(key));
  }
  if (!kind->must.empty() && !has_word(given, kind->must)) {
    return invalid_argument("needs " + std::string(kind->must) + "=NUMBER");
  }
  if (fault.kind == FaultKind::kStaleList && fault.calls == 0 && fault.seconds == 0) {
    return invalid_argument("needs calls=NUMBER or seconds=NUMBER");
  }
  return fault;
}

}  // namespace

Result<std::vector<Fault>> parse_faults(std::string_view spec) {
  std::vector<Fault> faults;
  for (const std::string_view text : split_text(spec, ',')) {
    Result<Fault> fault = parse_fault(text);
    if (!fault.ok()) return std::move(fault).status().at("fault " + quoted(text));
    faults.push_back(std::move(*fault));
  }
  return faults;
}

std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> inject_faults(
    std::string spec) {
  if (spec.empty()) return nullptr;
  return [spec = std::move(spec)](std::shared_ptr<Store> store) -> Result<std::shared_ptr<Store>> {
    DW_ASSIGN_OR_RETURN(std::vector<Fault> faults, parse_faults(spec));
    return std::shared_ptr<Store>(
        std::make_shared<FaultyStore>(std::move(store), std::move(faults)));
  };
}

}  // namespace deltawire
