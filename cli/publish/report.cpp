#include "cli/publish/publish.h"

#include <fmt/format.h>

#include "cli/table.h"

namespace deltawire::cli {
namespace {

std::string phases_text(const PublishReport& report) {
  std::string text;
  for (const Phase& phase : report.phases) {
    text += fmt::format("{}{} {} to {}", text.empty() ? "" : ", ", phase.name, seconds(phase.begin),
                        seconds(phase.end));
  }
  return text;
}

// "38 tensors added, 128 removed"; empty: the same tensors.
std::string schema_text(const PublishReport& report) {
  std::string text;
  const auto add = [&](uint64_t count, const char* what) {
    if (count == 0) return;
    text += text.empty() ? plural(count, "tensor") : ", " + human_count(count);
    text += what;
  };
  add(report.num_added, " added");
  add(report.num_removed, " removed");
  add(report.num_reshaped, " with another shape or dtype");
  return text;
}

std::string changed_text(const PublishReport& report) {
  if (report.num_elements == 0) return "no elements";
  return fmt::format("{} of {} elements ({})", human_count(report.num_changed),
                     human_count(report.num_elements),
                     percent(ratio(report.num_changed, report.num_elements)));
}

}  // namespace

Json to_json(const PublishReport& report) {
  return {{"run", report.run},
          {"version", report.version},
          {"committed", report.committed},
          {"kind", !report.committed ? "none"
                   : report.full     ? "full"
                                     : "delta"},
          {"reason", report.reason},
          {"codec", report.codec},
          {"anchored", report.anchored},
          {"elements", report.num_elements},
          {"changed", report.num_changed},
          {"density", ratio(report.num_changed, report.num_elements)},
          {"bytes", report.bytes},
          {"bytes_per_changed", ratio(report.bytes, report.num_changed)},
          {"full_bytes", report.weights_bytes},
          {"parts", report.num_parts},
          {"tensors", report.num_tensors},
          {"tensors_changed", report.num_changed_tensors},
          {"tensors_added", report.num_added},
          {"tensors_removed", report.num_removed},
          {"tensors_reshaped", report.num_reshaped},
          {"seconds", report.seconds},
          {"phases", phases_json(report.phases)},
          {"dense_float32", report.dense_float32},
          {"warnings", report.warnings},
          {"note", report.note}};
}

void say_report(const Context& context, const PublishReport& report) {
  if (!report.committed) {
    context.print("nothing   changed since version {} of run {}", report.version, report.run);
  } else {
    context.print("version   {} of run {}", report.version, report.run);
    if (const std::string schema = schema_text(report); !schema.empty()) {
      context.say("schema    " + schema);
    }
    if (report.full) {
      context.print("whole     {}", report.reason);
      context.print("bytes     {} in {}", human_bytes(double(report.bytes)),
                    plural(report.num_parts, "file"));
    } else {
      context.print("changed   {}, {} of {} tensors", changed_text(report),
                    report.num_changed_tensors, report.num_tensors);
      std::string bytes = fmt::format("bytes     {} in {}", human_bytes(double(report.bytes)),
                                      plural(report.num_parts, "part"));
      if (report.num_changed != 0) {
        bytes += fmt::format(", {:.3f} bytes per changed element",
                             ratio(report.bytes, report.num_changed));
      }
      context.say(bytes);
      context.print("full      {}: {:.1f} times the delta",
                    human_bytes(double(report.weights_bytes)),
                    ratio(report.weights_bytes, report.bytes));
    }
    if (report.anchored) context.say("anchor    stored whole too: late replicas begin here");
    context.say("phases    " + phases_text(report));
  }
  for (const std::string& warning : report.warnings) context.say("warning   " + warning);
  if (!report.note.empty()) context.say("note      " + report.note);
  if (report.dense_float32) context.say("hint      " + std::string(kFloat32Hint));
  context.print("time      {}, {}/s of weights", seconds(report.seconds),
                human_bytes(double(report.weights_bytes) / report.seconds));
}

std::string one_line(const PublishReport& report) {
  if (!report.committed) return fmt::format("nothing changed since version {}", report.version);
  std::string line = fmt::format("version {}: {} in {}", report.version,
                                 human_bytes(double(report.bytes)), seconds(report.seconds));
  if (const std::string schema = schema_text(report); !schema.empty()) line += ", " + schema;
  if (report.full) return line + ", whole: " + report.reason;
  if (report.num_elements != 0) {
    line += fmt::format(", {} changed", percent(ratio(report.num_changed, report.num_elements)));
  }
  return report.anchored ? line + ", anchored" : line;
}

}  // namespace deltawire::cli
