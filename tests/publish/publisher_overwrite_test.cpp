// A snapshot on disk that is advanced by writing the new tensors over the old ones: no part is read
// for it, and whatever happens to the tensors meanwhile, no version is built on what it should not.

#include "chain/names.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

struct Size {
  const char* name;
  uint64_t scale;  // of the model
  uint64_t memory_bytes;
};

class OverwriteTest : public ::testing::TestWithParam<Size> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make(GetParam().scale);
  bool parts_were_read = false;

  void SetUp() override {
    store->before_get = [this](std::string_view name) {
      if (name.starts_with(kPartPrefix)) parts_were_read = true;
      return Status();
    };
  }
  fs::path checkpoint() const { return folder.path() / "snapshot" / "checkpoint"; }
  Result<Publisher> open() {
    PublishOptions options{.snapshot = SnapshotInFolder{folder.path() / "snapshot", false},
                           .limits = {.threads = 2, .memory_bytes = GetParam().memory_bytes},
                           .schema_change = true};
    return Publisher::open(store, options);
  }
  static PublishReport publish(Publisher* publisher, const std::vector<PublishTensor>& tensors) {
    return must(publisher->publish(tensors));
  }
  void expect_snapshot(uint64_t version) const {
    const auto state = must(read_replica_state(checkpoint()));
    EXPECT_EQ(state.version, version);
    EXPECT_FALSE(state.patching_to);
    const auto held = must(Checkpoint::open(checkpoint()));
    for (const auto& tensor : model.tensors) {
      const CheckpointTensor* const found = held.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), found->view.bytes.begin(),
                             found->view.bytes.end()))
          << tensor.name;
    }
  }
  // What happens once the version is there and the snapshot is not.
  void when_committed(const std::function<void()>& act) {
    store->after_put = [act, acted = false](std::string_view name) mutable {
      if (name.starts_with(kManifestPrefix) && !std::exchange(acted, true)) act();
      return Status();
    };
  }
};

TEST_P(OverwriteTest, IsTheNewVersionWhateverItsDensity) {
  auto publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  publish(&*publisher, model.views());
  uint64_t version = 0;
  for (const double density : {0.0005, 0.02, 0.3}) {
    model.step(density);
    const PublishReport report = publish(&*publisher, model.views());
    EXPECT_EQ(report.version, ++version);
    EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
    expect_snapshot(version);
  }
  EXPECT_FALSE(parts_were_read);
  EXPECT_TRUE(holds(store, version, model));
  publisher = Status(Code::kNotFound, "closed");
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  EXPECT_FALSE(publish(&*publisher, model.views()).committed);
}

// Then the snapshot is not what the chain says, and equals what is published next.
TEST_P(OverwriteTest, TensorsThatChangeBeforeTheyAreCopied) {
  auto publisher = open();
  publish(&*publisher, model.views());
  model.step();
  const Model committed = model;
  when_committed([&] { model.step(); });
  EXPECT_EQ(publish(&*publisher, model.views()).version, 1);
  EXPECT_TRUE(holds(store, 1, committed));
  const PublishReport report = publish(&*publisher, model.views());
  EXPECT_TRUE(report.committed);
  EXPECT_EQ(report.version, 2);
  ASSERT_EQ(report.warnings.size(), 1);
  EXPECT_TRUE(contains(report.warnings[0], "made anew"));
  EXPECT_TRUE(holds(store, 2, model));
  expect_snapshot(2);
}

// As a crash leaves it: state.json says that a patch was begun, and there is no journal.
TEST_P(OverwriteTest, CutShortItIsReadFromTheChain) {
  auto publisher = open();
  publish(&*publisher, model.views());
  fs::path before = folder.path() / "before";
  model.step();
  when_committed([&] { fs::copy(checkpoint(), before, fs::copy_options::recursive); });
  publish(&*publisher, model.views());
  publisher = Status(Code::kNotFound, "closed");
  // Half of the file is the old version's.
  const fs::path weights = checkpoint() / "model.safetensors";
  const std::string old = testing::read_file(before / "model.safetensors");
  {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(ptrdiff_t(old.size() / 2));
    file.write(old.data() + old.size() / 2, ptrdiff_t(old.size() - old.size() / 2));
  }
  std::string state = testing::read_file(before / ".deltawire" / "state.json");
  const size_t at = state.find("\"patching_to\"");
  if (at == std::string::npos) {
    state.insert(state.find('{') + 1, "\"patching_to\":1,");
  } else {
    state.replace(at, state.find_first_of(",}", at) - at, "\"patching_to\":1");
  }
  std::ofstream(checkpoint() / ".deltawire" / "state.json", std::ios::binary) << state;
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  expect_snapshot(1);
  model.step();
  EXPECT_EQ(publish(&*publisher, model.views()).version, 2);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_P(OverwriteTest, OtherStepsTakeTheUsualWay) {
  auto publisher = open();
  publish(&*publisher, model.views());
  // A tensor that comes.
  model.step();
  model.tensors.push_back(make_tensor("new", DType::kF32, {7, 9}, 3));
  publish(&*publisher, model.views());
  expect_snapshot(1);
  // Captured: the tensors go on before the snapshot is advanced.
  model.step();
  ASSERT_TRUE(publisher->capture(model.views()).ok());
  const Model captured = model;
  model.step();
  ASSERT_TRUE(publisher->finish().ok());
  EXPECT_TRUE(holds(store, 2, captured));
  model.tensors = captured.tensors;
  expect_snapshot(2);
  // In boxes.
  model.step();
  std::vector<PublishTensor> views = model.views();
  PublishTensor half = views[1];
  half.box = {{0, 0}, {32, 100}};
  views[1].box = {{32, 0}, {32, 100}};
  half.view.bytes = views[1].view.bytes.first(32 * 100 * 2);
  views[1].view.bytes = views[1].view.bytes.subspan(32 * 100 * 2);
  views.push_back(half);
  EXPECT_TRUE(publish(&*publisher, views).warnings.empty());
  expect_snapshot(3);
  EXPECT_TRUE(holds(store, 3, model));
}

// Somebody wrote to it: that is found before anything is built on it.
TEST_P(OverwriteTest, EditedFilesAreNotWrittenOver) {
  auto publisher = open();
  publish(&*publisher, model.views());
  model.step();
  when_committed([&] {
    std::fstream file(checkpoint() / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  });
  publish(&*publisher, model.views());
  expect_snapshot(1);
  model.step();
  publish(&*publisher, model.views());
  EXPECT_TRUE(holds(store, 2, model));
}

INSTANTIATE_TEST_SUITE_P(Sizes, OverwriteTest,
                         ::testing::Values(Size{"Small", 1, uint64_t{2} << 30},
                                           Size{"Blocks", 60, uint64_t{2} << 30},
                                           Size{"Slices", 200, uint64_t{32} << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltawire::testing
