#include "kernels/kernels.h"

#include <fmt/format.h>

#include "cli/verbs.h"
#ifdef DELTAWIRE_HAVE_CUDA
#include "kernels/cuda/memory.h"
#endif

namespace deltawire::cli {
namespace {

// The GPU in use, or why there is none.
nlohmann::json describe_gpu(const Context& context) {
#ifdef DELTAWIRE_HAVE_CUDA
  const Result<cuda::DeviceInfo> info = cuda::device_info();
  if (info.ok()) {
    context.say(fmt::format("* cuda: {}", info->name));
    return info->name;
  }
  context.say("  cuda: compiled in, no GPU here");
#else
  context.say("  cuda: not compiled in");
#endif
  return nullptr;
}

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
  context.emit({{"available", names}, {"chosen", kernels().name}, {"cuda", describe_gpu(context)}});
  return context.succeed();
}

}  // namespace

void add_kernels(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "kernels",
      "List the instruction sets and GPUs this machine can use; * marks those in use",
      "  deltawire kernels\n"
      "  DELTAWIRE_KERNELS=scalar deltawire diff a.safetensors b.safetensors -o d.safetensors");
  verb->callback([&context, call] { *call = [&context] { return list(context); }; });
}

}  // namespace deltawire::cli
