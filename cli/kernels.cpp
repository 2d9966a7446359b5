#include "kernels/kernels.h"

#include <fmt/format.h>

#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

int list(const Context& context) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const Kernels* target : available_kernels()) {
    const bool chosen = target == &kernels();
    names.push_back(target->name);
    context.say(fmt::format("{} {}", chosen ? "*" : " ", target->name));
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
