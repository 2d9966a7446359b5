// Parts as a chain has them: no index, no target; the manifest names both.
#include <gtest/gtest.h>

#include "checkpoints.h"
#include "delta/delta_reader.h"
#include "deltawire/delta.h"
#include "format/state_digest.h"

namespace deltawire::testing {
namespace {

class VersionPartsTest : public ::testing::Test {
 protected:
  VersionPartsTest() {
    for (const char* name : {"a", "b"}) {
      before_.push_back(make_tensor(name, DType::kBF16, {300}, before_.size()));
      after_.push_back(before_.back());
      change(&after_.back(), 0.2, 7);
    }
  }

  std::filesystem::path at(const std::string& name) const { return folder_.path() / name; }

  Digest base_state() const {
    std::vector<TensorState> states;
    for (const TestTensor& tensor : before_) {
      states.push_back(
          {tensor.name, tensor.dtype, tensor.shape, digest_of(DigestKind::kSum128, tensor.bytes)});
    }
    return state_digest(states);
  }

  void write(size_t tensor, const std::string& name, const Digest& base) const {
    const TestTensor &before = before_[tensor], &after = after_[tensor];
    const auto report = write_part(
        at(name), {{before.name, before.dtype, before.shape, {}, before.bytes, after.bytes}}, base,
        Digest{}, {});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
  }

  TempFolder folder_;
  std::vector<TestTensor> before_, after_;
};

TEST_F(VersionPartsTest, LeaveTheirTargetOpen) {
  write(0, "0.safetensors", base_state());
  write(1, "1.safetensors", base_state());
  const auto delta =
      open_delta_parts({{at("1.safetensors"), "parts/1"}, {at("0.safetensors"), "parts/0"}});
  ASSERT_TRUE(delta.ok()) << delta.status().to_string();
  EXPECT_FALSE(delta->info.has_target());
  ASSERT_EQ(delta->entries.size(), 2);
  EXPECT_EQ(delta->entries[0].place, "parts/0, tensor \"a\"");
  EXPECT_EQ(delta->entries[1].place, "parts/1, tensor \"b\"");
}

TEST_F(VersionPartsTest, OfTwoBasesDoNotMix) {
  write(0, "0.safetensors", base_state());
  write(1, "1.safetensors", digest_of(DigestKind::kXxh3_128, {}));
  EXPECT_TRUE(is_failure(
      open_delta_parts({{at("0.safetensors"), "parts/0"}, {at("1.safetensors"), "parts/1"}})
          .status(),
      Code::kCorruption, "parts/1", "another delta"));
}

TEST_F(VersionPartsTest, MayNotCoverATensorTwice) {
  write(0, "0.safetensors", base_state());
  EXPECT_TRUE(is_failure(
      open_delta_parts({{at("0.safetensors"), "parts/0"}, {at("0.safetensors"), "parts/1"}})
          .status(),
      Code::kCorruption, "covers too"));
}

// One part alone is a delta like any other: what it leads to is proven tensor by tensor.
TEST_F(VersionPartsTest, OneAloneCanBeApplied) {
  after_[1] = before_[1];
  write_checkpoint(at("old.safetensors"), before_);
  write_checkpoint(at("new.safetensors"), after_);
  write(0, "0.safetensors", base_state());
  const auto applied =
      apply_delta(at("0.safetensors"), at("old.safetensors"), at("out.safetensors"), {});
  ASSERT_TRUE(applied.ok()) << applied.status().to_string();
  EXPECT_EQ(read_file(at("out.safetensors")), read_file(at("new.safetensors")));
}

TEST_F(VersionPartsTest, NoneAreADeltaWithoutEntries) {
  const auto delta = open_delta_parts({});
  ASSERT_TRUE(delta.ok());
  EXPECT_TRUE(delta->entries.empty());
}

}  // namespace
}  // namespace deltawire::testing
