#include "kernels/kernels.h"

#include <fmt/format.h>

#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

int list(const Context& context) {
  std::vector<std::string> names;
  for (const Kernels* target : available_kernels()) {
    const bool chosen = unknown_kernels().empty() && target == &kernels();
    names.emplace_back(target->name);
    context.say(fmt::format("{} {}", chosen ? "*" : " ", target->name));
  }
  if (!unknown_kernels().empty()) {
    return context.fail(
        invalid_argument(fmt::format("DELTAWIRE_KERNELS={} names none of those that run here: {}",
                                     unknown_kernels(), fmt::join(names, ", "))));
  }
  context.emit({{"available", names}, {"chosen", kernels().name}});
  return context.succeed();
}

}  // namespace

void add_kernels(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb = make_verb(
      app, context, "kernels",
      "List the instruction sets this machine can use; * is the one in use",
      "  deltawire kernels\n"
      "  DELTAWIRE_KERNELS=scalar deltawire diff a.safetensors b.safetensors -o d.safetensors");
  verb->callback([&context, run] { *run = [&context] { return list(context); }; });
}

}  // namespace deltawire::cli
