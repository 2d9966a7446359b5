// What every store promises (deltawire/store.h), as tests that any store can be put through:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, StoreConformance, ::testing::Values(StoreCase{make_mine}));
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "deltawire/store.h"

namespace deltawire::testing {

struct OpenedStore {
  std::shared_ptr<Store> store;   // empty of objects; null: cannot run here
  std::string why_not;            // then
  std::shared_ptr<void> keeps{};  // what must outlive the store: a folder, a server
};

// Takes whatever it is given.
class NoSink final : public Sink {
 public:
  Status write(uint64_t, std::span<const uint8_t>) override { return {}; }
};

struct StoreCase {
  std::function<OpenedStore()> make;
  // Off for a store that says so in its capabilities: then those tests check that it refuses.
  bool put_if_absent = true;
};

inline void PrintTo(const StoreCase&, std::ostream* out) { *out << "a store"; }

class StoreConformance : public ::testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override;
  Store& store() { return *opened_.store; }

  Status put(std::string_view name, std::string_view text);
  Status put_if_absent(std::string_view name, std::string_view text);
  // What is stored under a name; the failure, in words, when there is nothing.
  std::string text_of(std::string_view name);
  std::string names(std::string_view prefix, std::string_view start_after = "",
                    size_t limit = 1000);

 private:
  OpenedStore opened_;
};

}  // namespace deltawire::testing
