// Short forms of faults for tests.
#pragma once

#include <gtest/gtest.h>

#include "faults/faulty_store.h"
#include "test_files.h"

namespace deltawire::testing {

inline std::vector<Fault> faults(std::string_view spec) {
  if (spec.empty()) return {};
  return must(parse_faults(spec));
}

}  // namespace deltawire::testing
