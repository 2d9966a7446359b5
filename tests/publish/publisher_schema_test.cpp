// Added, removed or reshaped tensors: a different model, which is refused unless `schema_change` is
// set.

#include "support/hooked_store.h"
#include "support/published_model.h"
#include "support/thread_group.h"

namespace deltawire::testing {
namespace {

enum class Setup { kMemory, kFolder, kAnchors, kTwoRanks };

class PublisherSchemaTest : public ::testing::TestWithParam<Setup> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  PublishOptions options;
  ThreadGroup group{2};

  Publisher open(unsigned rank = 0) {
    options.limits.threads = 1;
    if (GetParam() == Setup::kFolder)
      options.snapshot = SnapshotInFolder{folder.path() / "snapshot"};
    if (GetParam() == Setup::kAnchors) options.anchors = OnlyAnchors{};
    options.ranks = GetParam() == Setup::kTwoRanks ? group.ranks(rank) : Ranks();
    return must(Publisher::open(store, options));
  }
  // Each rank publishes its own tensors; returns the result of rank 0.
  struct Trainer {
    std::vector<Publisher> ranks;
    Result<PublishReport> publish(const Model& model) {
      const std::vector<PublishTensor> views = model.views();
      if (ranks.size() == 1) return ranks[0].publish(views);
      const std::span<const PublishTensor> all(views);
      std::optional<Result<PublishReport>> other;
      std::thread second([&] { other = ranks[1].publish(all.subspan(all.size() / 2)); });
      Result<PublishReport> first = ranks[0].publish(all.first(all.size() / 2));
      second.join();
      EXPECT_EQ(other->ok(), first.ok()) << other->status().to_string();
      if (first.ok() && first->committed) {
        EXPECT_EQ((*other)->num_added, first->num_added);
        EXPECT_EQ((*other)->num_removed, first->num_removed);
        EXPECT_EQ((*other)->num_reshaped, first->num_reshaped);
      }
      return first;
    }
  };
  Trainer trainer() {
    Trainer trainer;
    for (unsigned rank = 0; rank < (GetParam() == Setup::kTwoRanks ? 2U : 1U); ++rank) {
      trainer.ranks.push_back(open(rank));
    }
    return trainer;
  }
  // "embed" is removed, "head" is added, "norm" gets another shape and "scale" another dtype.
  void change_schema() {
    model.step();
    model.tensors[0] = make_tensor("head", DType::kBF16, {10, 64}, 7);
    model.tensors[3] = make_tensor("norm", DType::kF32, {32}, 8);
    model.tensors[4] = make_tensor("scale", DType::kF16, {}, 9);
  }
};

TEST_P(PublisherSchemaTest, RefusesAnotherModel) {
  Trainer publisher = trainer();
  ASSERT_TRUE(publisher.publish(model).ok());
  const Model before = model;
  change_schema();
  const auto objects = objects_of(*store, "full/");
  for (int i = 0; i < 2; ++i) {
    EXPECT_FAILS(publisher.publish(model), kInvalidArgument, "1 tensor added (\"head\")",
                 "1 removed (\"embed\")", "2 with another shape or dtype",
                 "\"norm\": F32 [32], was F32 [64]", "\"scale\": F16 [], was F32 []",
                 "schema_change");
  }
  EXPECT_EQ(head_of(store), 0);
  EXPECT_EQ(objects_of(*store, "full/"), objects);
  // The right model can still be published.
  model = before;
  model.step();
  const auto report = must(publisher.publish(model));
  EXPECT_EQ(report.version, 1);
  EXPECT_EQ(report.num_added + report.num_removed + report.num_reshaped, 0);
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_P(PublisherSchemaTest, SchemaChangeAllowsIt) {
  options.schema_change = true;
  Trainer publisher = trainer();
  ASSERT_TRUE(publisher.publish(model).ok());
  change_schema();
  auto report = publisher.publish(model);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_added, 1);
  EXPECT_EQ(report->num_removed, 1);
  EXPECT_EQ(report->num_reshaped, 2);
  EXPECT_TRUE(holds(store, 1, model));
  // New tensors count with all their elements.
  if (!report->full) {
    uint64_t elements = 0;
    for (const auto& tensor : model.tensors) elements += num_elements(tensor.shape).value();
    EXPECT_EQ(report->num_elements, elements);
    EXPECT_GE(report->num_changed, 10 * 64 + 32 + 1);
    EXPECT_LE(report->num_changed, elements);
  }
  model.step();
  report = publisher.publish(model);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_added + report->num_removed + report->num_reshaped, 0);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_P(PublisherSchemaTest, NamesAFewOfManyTensors) {
  Trainer publisher = trainer();
  ASSERT_TRUE(publisher.publish(model).ok());
  model.tensors.clear();
  for (int i = 0; i < 38; ++i) {
    model.tensors.push_back(make_tensor("t" + std::to_string(i), DType::kBF16, {2}, uint64_t(i)));
  }
  EXPECT_FAILS(publisher.publish(model), kInvalidArgument,
               "38 tensors added (\"t0\", \"t1\", \"t10\", ...)", "6 removed");
}

// Tensors without elements are added and removed; none changes.
TEST_P(PublisherSchemaTest, HandlesAddedAndRemovedEmptyTensors) {
  options.schema_change = true;
  Trainer publisher = trainer();
  ASSERT_TRUE(publisher.publish(model).ok());
  model.tensors.push_back(make_tensor("void", DType::kBF16, {0, 4}, 1));
  auto report = publisher.publish(model);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->committed);
  EXPECT_EQ(report->num_added, 1);
  EXPECT_TRUE(holds(store, 1, model));
  EXPECT_FALSE(publisher.publish(model)->committed);
  model.tensors.pop_back();
  report = publisher.publish(model);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_removed, 1);
  EXPECT_TRUE(holds(store, 2, model));
}

INSTANTIATE_TEST_SUITE_P(Publishers, PublisherSchemaTest,
                         ::testing::Values(Setup::kMemory, Setup::kFolder, Setup::kAnchors,
                                           Setup::kTwoRanks));

}  // namespace
}  // namespace deltawire::testing
