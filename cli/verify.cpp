#include <fmt/format.h>

#include "bridge/bridge.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/delta.h"

namespace deltawire::cli {
namespace {

constexpr int kDifferent = 1;  // the exit status that no error has
constexpr size_t kMostDifferences = 20;

struct VerifyArguments {
  std::string a, b;
};

Json to_json(const TensorDifference& difference) {
  Json json = {{"tensor", difference.tensor}};
  if (!difference.what.empty()) json["what"] = difference.what;
  json["different"] = difference.num_different;
  json["elements"] = difference.num_elements;
  if (difference.first) {
    json["first"] = {{"file", difference.first->file},
                     {"coordinate", difference.first->coordinate},
                     {"a", difference.first->old_bits},
                     {"b", difference.first->new_bits}};
  }
  return json;
}

std::string to_line(const TensorDifference& difference) {
  const std::string tensor = shown_path(difference.tensor);
  if (!difference.what.empty()) return fmt::format("  {}: {}", tensor, shown_path(difference.what));
  return fmt::format(
      "  {}: {} of {}; first at {} in {}: {} against {}", tensor,
      human_count(difference.num_different), plural(difference.num_elements, "element"),
      shape_to_string(difference.first->coordinate), shown_path(difference.first->file),
      difference.first->old_bits, difference.first->new_bits);
}

int verify(const Context& context, const VerifyArguments& options) {
  const double start = steady_seconds();
  Result<VerifyReport> result = [&]() -> Result<VerifyReport> {
    ProgressBar bar(context, "verify");
    const ApplyOptions how{context.threads, bar.callback()};
    DW_ASSIGN_OR_RETURN(const auto left, recognise_foreign(options.a));
    if (left) return verify_foreign(*left, options.b, how);
    DW_ASSIGN_OR_RETURN(const auto right, recognise_foreign(options.b));
    if (right) return verify_foreign(*right, options.a, how);
    return verify_checkpoints(options.a, options.b, how);
  }();
  if (!result.ok()) return context.fail(result.status());
  const VerifyReport& report = *result;
  const bool identical = report.differences.empty();
  Json differences = Json::array();
  for (const TensorDifference& difference : report.differences)
    differences.push_back(to_json(difference));
  context.emit({{"identical", identical},
                {"tensors", report.num_tensors},
                {"elements", report.num_elements},
                {"different", report.num_different},
                {"differences", differences},
                {"seconds", steady_seconds() - start}});
  if (identical) {
    context.print("bit-identical: {}, {}", plural(report.num_tensors, "tensor"),
                  plural(report.num_elements, "element"));
    return context.succeed();
  }
  context.print("different: {} of {}, {}", report.differences.size(),
                plural(report.num_tensors, "tensor"), plural(report.num_different, "element"));
  for (size_t i = 0; i < std::min(kMostDifferences, report.differences.size()); ++i)
    context.say(to_line(report.differences[i]));
  if (report.differences.size() > kMostDifferences) {
    context.print("  and {} more (--json lists all)", report.differences.size() - kMostDifferences);
  }
  return kDifferent;
}

}  // namespace

void add_verify(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "verify", "Compare two checkpoints bit by bit; exit 0 if identical, 1 if not",
      "  deltawire verify trainer/ckpt-2 replica/ckpt-2\n"
      "  deltawire verify a.safetensors b.safetensors --json\n"
      "  deltawire verify deltas/weight_v000012 ckpt/   is it slime's version 12?");
  auto* const options = set_call(verb, context, call, verify);
  verb->add_option("A", options->a, "a checkpoint: a .safetensors file or a folder")->required();
  verb->add_option("B", options->b, "another")->required();
  add_threads(verb, context);
}

}  // namespace deltawire::cli
