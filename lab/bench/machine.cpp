#include "lab/bench/machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <string_view>

#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace deltawire::cli {
namespace {

// Arm's /proc/cpuinfo has numbers only.
std::string arm_core(const std::string& implementer, const std::string& part) {
  constexpr struct {
    std::string_view part, name;
  } kCores[] = {{"0xd0c", "Neoverse-N1"}, {"0xd40", "Neoverse-V1"}, {"0xd49", "Neoverse-N2"},
                {"0xd4f", "Neoverse-V2"}, {"0xd83", "Neoverse-V3"}, {"0xd8e", "Neoverse-N3"}};
  for (const auto& core : kCores) {
    if (implementer == "0x41" && core.part == part) return std::string(core.name);
  }
  return "implementer " + implementer + " part " + part;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer, part;
  for (std::string line; std::getline(info, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) part = value;
  }
  return part.empty() ? "unknown" : arm_core(implementer, part);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  utsname names{};
  machine.arch = uname(&names) == 0 ? names.machine : "unknown";
  machine.cores = ThreadPool(0).num_workers();
  machine.kernels = kernels().name;
#ifdef __clang__
  machine.compiler = "clang " __clang_version__;
#else
  machine.compiler = "gcc " __VERSION__;
#endif
  return machine;
}

}  // namespace deltawire::cli
