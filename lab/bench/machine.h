// The machine and the build that numbers belong to.
#pragma once

#include <string>

namespace deltawire::cli {

struct Machine {
  std::string cpu;       // "Intel(R) Xeon(R) Processor", "Neoverse-V1"
  std::string arch;      // "x86_64"
  unsigned cores = 1;    // that this process may use
  std::string kernels;   // the target in use
  std::string compiler;  // "gcc 12.2.0"
};

Machine this_machine();

}  // namespace deltawire::cli
