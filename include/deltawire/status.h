// Every function of deltawire reports failures by value; none throws or prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace deltawire {

// Pinned: the number is also the exit status of the CLI. 1 is left to `verify`, "they differ".
enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument = 2,
  kUnsupported = 3,
  kNotFound = 4,
  kConflict = 5,
  kCorruption = 6,
  kBaseMismatch = 7,
  kIo = 8,
  kUnavailable = 9,  // the only one worth a retry
  kOutOfMemory = 10,
  kDevice = 11,
  kCancelled = 12,
  kInternal = 13,
};

// "corruption", "base mismatch", ...: the words used in messages, docs and JSON.
std::string_view code_name(Code code) noexcept;

// Ok, or a code and a message that names the place. Cheap to move; ok() costs nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  // "corruption: step.safetensors, tensor "w": ..."
  std::string to_string() const;
  // The same failure, seen from further out: `place` is put before the message.
  Status at(std::string_view place) &&;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// What to do about a failure, for people: "free space on that disk, then repeat". Empty when the
// message says it. docs/reference.md says more.
std::string next_step(const Status& status);

// Prints the status and aborts.
[[noreturn]] void no_value(const Status& status) noexcept;

// A value or the Status that says why there is none. Shaped like std::expected. Who takes the value
// without asking ok() where there is none gets the status on stderr and an abort, in release too.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status status)                          // NOLINT
      : status_(!status.ok()
                    ? std::move(status)
                    : Status(Code::kInternal, "a Result was made of Ok, without a value")) {}

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const& noexcept { return status_; }
  Status status() && noexcept { return std::move(status_); }
  T& value() & { return checked(); }
  const T& value() const& { return checked(); }
  T value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return checked(); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &checked(); }

 private:
  T& checked() {
    if (!value_) [[unlikely]]
      no_value(status_);
    return *value_;
  }
  const T& checked() const { return const_cast<Result*>(this)->checked(); }

  std::optional<T> value_;
  Status status_;
};

Status invalid_argument(std::string message);
Status unsupported(std::string message);
Status not_found(std::string message);
Status conflict(std::string message);
Status corruption(std::string message);
Status base_mismatch(std::string message);
Status io_error(std::string message);
Status unavailable(std::string message);
Status out_of_memory(std::string message);
Status cancelled(std::string message);
Status internal_error(std::string message);

}  // namespace deltawire

#define DW_CONCAT_(a, b) a##b
#define DW_CONCAT(a, b) DW_CONCAT_(a, b)
#define DW_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::deltawire::Status dw_status_ = (expr); \
    if (!dw_status_.ok()) return dw_status_; \
  } while (false)
#define DW_ASSIGN_OR_RETURN(lhs, expr) \
  DW_ASSIGN_OR_RETURN_(lhs, expr, DW_CONCAT(dw_result_, __LINE__))
#define DW_ASSIGN_OR_RETURN_(lhs, expr, result)        \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()
