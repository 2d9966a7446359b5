// Faults as tests write them.
#pragma once

#include <gtest/gtest.h>

#include "store/faulty_store.h"

namespace deltawire::testing {

inline std::vector<Fault> faults(std::string_view spec) {
  if (spec.empty()) return {};
  Result<std::vector<Fault>> parsed = parse_faults(spec);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : std::vector<Fault>();
}

}  // namespace deltawire::testing
