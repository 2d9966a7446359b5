#include "options.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lent.h"

namespace deltawire::python {
namespace nb = nanobind;
namespace {

template <class T>
constexpr const char* kind_of_value() {
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_integral_v<T>) return "a whole number, 0 or more";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  return "a path";
}

// None is an empty path or text.
template <class T>
T field(nb::handle group, const char* name) {
  const nb::object value = group.attr(name);
  T out{};
  if (!std::is_arithmetic_v<T> && value.is_none()) return out;
  if (nb::try_cast(value, out)) return out;
  const std::string message = std::string(nb::str(group.type().attr("__name__")).c_str()) + "(" +
                              name + "=" + nb::repr(value).c_str() + "): must be " +
                              kind_of_value<T>();
  throw nb::type_error(message.c_str());
}

using Path = std::filesystem::path;

}  // namespace

Keys to_keys(nb::handle group) {
  const nb::object change = group.attr("change");
  const bool is_unsigned = nb::isinstance<nb::str>(change);  // "unsigned": checked by options.py
  return {.sign = field<Path>(group, "sign"),
          .trust = field<Path>(group, "trust"),
          .change = is_unsigned                    ? KeyChange::kUnsigned
                    : field<bool>(group, "change") ? KeyChange::kNewKey
                                                   : KeyChange::kNone};
}

Limits to_limits(nb::handle group) {
  return {field<unsigned>(group, "threads"), field<uint64_t>(group, "memory_bytes")};
}

CudaOptions to_cuda(nb::handle group) {
  return {reinterpret_cast<CUstream_st*>(field<uintptr_t>(group, "stream")),
          field<uint64_t>(group, "scratch_bytes"),
          group.attr("kept_bytes").is_none() ? std::nullopt
                                             : std::optional(field<uint64_t>(group, "kept_bytes"))};
}

Accept to_accept(nb::handle group) {
  return {field<Path>(group, "trust"), field<std::string>(group, "run"),
          field<uint64_t>(group, "at_least")};
}

// The library calls all_gather without the GIL, in the publishing thread.
Ranks to_ranks(nb::object ranks) {
  if (ranks.is_none()) return {};
  const auto held = std::shared_ptr<nb::object>(new nb::object(ranks), [](nb::object* object) {
    drop(object);
    delete object;
  });
  const auto all_gather = [held](std::string_view mine) {
    return ask_python<std::vector<std::string>>("all_gather", [&] {
      std::vector<std::string> all;
      for (const nb::handle one : held->attr("all_gather")(nb::bytes(mine.data(), mine.size()))) {
        const nb::bytes bytes = nb::cast<nb::bytes>(one);
        all.emplace_back(static_cast<const char*>(bytes.data()), bytes.size());
      }
      return all;
    });
  };
  return {field<unsigned>(ranks, "rank"), field<unsigned>(ranks, "world"), all_gather};
}

Hook to_hook(nb::handle group) {
  if (group.is_none()) return {};
  return {field<std::string>(group, "command"), field<double>(group, "timeout_seconds")};
}

AnchorChoice to_anchors(nb::handle group) {
  if (nb::isinstance<nb::str>(group)) return OnlyAnchors{};
  return Anchors{field<uint64_t>(group, "every"), field<bool>(group, "by_bytes")};
}

std::optional<CopyOnWrite> to_copy_on_write(nb::handle group) {
  if (group.is_none()) return {};
  return CopyOnWrite{field<unsigned>(group, "keep")};
}

PublishOptions to_publish_options(nb::handle group) {
  PublishOptions options;
  options.hook_before_commit = to_hook(group.attr("hook_before_commit"));
  options.limits = to_limits(group.attr("limits"));
  options.cuda = to_cuda(group.attr("cuda"));
  options.part_bytes = field<uint64_t>(group, "part_bytes");
  options.plain_files = field<bool>(group, "plain_files");
  options.schema_change = field<bool>(group, "schema_change");
  options.accept_loss = field<bool>(group, "accept_loss");
  options.new_run = field<bool>(group, "new_run");
  options.single_writer = field<bool>(group, "single_writer");
  return options;
}

void refuse_option(const char* name, nb::handle value) {
  throw nb::type_error((std::string(name) + " cannot be " + nb::repr(value).c_str()).c_str());
}

}  // namespace deltawire::python
