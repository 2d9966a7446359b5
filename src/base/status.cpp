#include "deltawire/status.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace deltawire {

std::string_view code_name(Code code) noexcept {
  constexpr std::string_view kNames[] = {"ok",
                                         "",
                                         "invalid argument",
                                         "unsupported",
                                         "not found",
                                         "conflict",
                                         "corruption",
                                         "base mismatch",
                                         "i/o error",
                                         "unavailable",
                                         "out of memory",
                                         "device error",
                                         "cancelled",
                                         "internal error"};
  return size_t(code) < std::size(kNames) ? kNames[size_t(code)] : "unknown";
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

Status Status::at(std::string_view place) && {
  if (!ok()) message_.insert(0, std::string(place) + ": ");
  return std::move(*this);
}

void no_value(const Status& status) noexcept {
  std::fprintf(stderr, "deltawire: the value of a failed Result was used: %s\n",
               status.to_string().c_str());
  std::abort();
}

Status invalid_argument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
Status unsupported(std::string m) { return {Code::kUnsupported, std::move(m)}; }
Status not_found(std::string m) { return {Code::kNotFound, std::move(m)}; }
Status conflict(std::string m) { return {Code::kConflict, std::move(m)}; }
Status corruption(std::string m) { return {Code::kCorruption, std::move(m)}; }
Status base_mismatch(std::string m) { return {Code::kBaseMismatch, std::move(m)}; }
Status io_error(std::string m) { return {Code::kIo, std::move(m)}; }
Status unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
Status out_of_memory(std::string m) { return {Code::kOutOfMemory, std::move(m)}; }
Status cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
Status internal_error(std::string m) { return {Code::kInternal, std::move(m)}; }

}  // namespace deltawire
