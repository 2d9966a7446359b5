// The promises of every store (deltawire/store.h), as tests that any store can run:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, StoreConformance, ::testing::Values(StoreCase{make_mine}));
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "deltawire/store.h"

namespace deltawire::testing {

struct OpenedStore {
  std::shared_ptr<Store> store;   // empty of objects; null: cannot run here
  std::string why_not;            // then
  std::shared_ptr<void> keeps{};  // what must outlive the store: a folder, a server
};

// Pseudorandom bytes for a seed.
std::vector<uint8_t> pattern(size_t size, uint64_t seed = 1);

// Receives an object of a known size; `before_write` is called before each piece.
class BytesSink final : public Sink {
 public:
  explicit BytesSink(size_t size) : bytes(size) {}
  Status write(uint64_t offset, std::span<const uint8_t> piece) override;

  std::vector<uint8_t> bytes;
  std::function<void()> before_write;
};

// Processes race to put the same names: exactly one wins each. `open` opens the same store anew.
void race_processes(const std::function<std::shared_ptr<Store>()>& open);

struct StoreCase {
  std::function<OpenedStore()> make;
  // False for a store without this capability: the tests then check that it refuses.
  bool put_if_absent = true;
};

inline void PrintTo(const StoreCase&, std::ostream* out) { *out << "a store"; }

class StoreConformance : public ::testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override;
  Store& store() { return *opened_.store; }

  Status put(std::string_view name, std::string_view text);
  Status put_if_absent(std::string_view name, std::string_view text);
  // The text stored under a name, or the error message.
  std::string text_of(std::string_view name);
  std::string names(std::string_view prefix, std::string_view start_after = "",
                    size_t limit = 1000);

 private:
  OpenedStore opened_;
};

}  // namespace deltawire::testing
