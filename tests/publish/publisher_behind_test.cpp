// A snapshot on disk that stays behind the chain: what is read of it is the head, and it is brought
// there in the end.
#include <fcntl.h>
#include <unistd.h>

#include "publish/behind.h"

namespace deltawire {
namespace {

using testing::BehindTest;
using testing::holds;
using testing::HookedStore;
using testing::kMostBehind;
using testing::make_tensor;
using testing::Model;
namespace fs = std::filesystem;

TEST_P(BehindTest, IsReadAsTheHeadAndFoldedInTheEnd) {
  const uint64_t count = 2 * kMostBehind + 4;
  for (uint64_t version = 0; version < count; ++version) {
    publish_next();
    EXPECT_EQ(held(), version / (kMostBehind + 1) * (kMostBehind + 1)) << version;
    EXPECT_EQ(parts().size(), version % (kMostBehind + 1)) << version;
    model.step();
  }
}

// Out of memory, where files are on a disk, when they are to be written over.
TEST_P(BehindTest, FilesThatAreNotInMemory) {
  const auto evict = [this](std::string_view name) {
    if (!name.starts_with(kManifestPrefix)) return Status();
    const int file = ::open((checkpoint() / "model.safetensors").c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return Status();
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
    return Status();
  };
  publish_versions(1);
  store->after_put = evict;
  uint64_t version = 1;
  for (const SnapshotAdvance when :
       {SnapshotAdvance::kLater, SnapshotAdvance::kAuto, SnapshotAdvance::kNow}) {
    options.snapshot = SnapshotInFolder{folder.path() / "snapshot", false, when};
    reopen();
    for (const double density : {0.02, 0.0001}) {
      for (uint64_t i = 0; i <= kMostBehind; ++i, ++version) {
        publish_next();
        EXPECT_TRUE(when != SnapshotAdvance::kNow || held() == version);
        model.step(density);
      }
    }
  }
}

TEST_P(BehindTest, OfEveryProcessAnew) {
  const size_t before = num_reads;
  for (uint64_t version = 0; version < 4; ++version) {
    reopen();
    if (version == 3) {  // the same again
      EXPECT_FALSE(publish(model.views()).committed);
      break;
    }
    if (version != 0) model.step();
    const PublishReport report = publish(model.views());
    EXPECT_EQ(report.version, version);
    EXPECT_TRUE(report.warnings.empty());
    EXPECT_EQ(held(), 0);
  }
  EXPECT_EQ(num_reads, before);  // copies are at hand
  EXPECT_TRUE(holds(store, 2, model));
}

// What the version holds does not depend on where the old contents came from.
TEST_P(BehindTest, DeltasAreTheSameBitForBit) {
  auto other = std::make_shared<MemoryStore>();
  PublishOptions in_memory = options;
  in_memory.snapshot = SnapshotInMemory{};
  auto reference = Publisher::open(other, in_memory);
  ASSERT_TRUE(reference.ok());
  for (uint64_t version = 0; version < 4; ++version) {
    publish_next();
    ASSERT_TRUE(reference->publish(model.views()).ok());
    model.step();
  }
  const auto sizes = [](const std::shared_ptr<Store>& of) {
    std::vector<std::pair<uint64_t, std::string>> all;
    const auto chain = Chain::open(of, {});
    for (uint64_t version = 1; version < 4; ++version) {
      const auto record = chain->version(version);
      for (const PartRef& part : record->manifest.parts) {
        all.emplace_back(part.size_bytes, part.sha256.hex());
      }
    }
    return all;
  };
  EXPECT_EQ(sizes(store), sizes(other));
}

TEST_P(BehindTest, AnyCodec) {
  for (const char* codec : {"gaps", "raw", "adaptive", "tight", "auto"}) {
    options.codec = codec;
    reopen();
    publish_next();
    model.step();
  }
}

TEST_P(BehindTest, OtherStepsAreFolded) {
  publish_versions(2);
  EXPECT_EQ(held(), 0);
  // A tensor that comes.
  model.tensors.push_back(make_tensor("new", DType::kF32, {7, 9}, 3));
  publish_next();
  EXPECT_EQ(held(), 2);
  // Other weights: stored whole.
  for (auto& tensor : model.tensors) {
    tensor = make_tensor(tensor.name, tensor.dtype, tensor.shape, ++model.steps * 1000);
  }
  publish_next();
  EXPECT_EQ(held(), 3);
  // A tensor that goes.
  model.step();
  model.tensors.pop_back();
  publish_next();
  EXPECT_EQ(held(), 4);
}

// The tensors go on before the snapshot would be advanced.
TEST_P(BehindTest, CapturedVersions) {
  publish_versions(1);
  for (uint64_t version = 1; version < 4; ++version) {
    ASSERT_TRUE(publisher->capture(model.views()).ok());
    const Model captured = model;
    model.step();
    const auto report = publisher->finish();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->warnings.empty());
    EXPECT_TRUE(holds(store, version, captured));
    EXPECT_EQ(held(), 0);
  }
}

// Whole, in rows, in columns, whole again.
TEST_P(BehindTest, Boxes) {
  publish_versions(2);
  const auto in_boxes = [&](bool rows) {
    std::vector<PublishTensor> views = model.views();
    PublishTensor half = views[1];  // 64 x 100
    const Bytes all = views[1].view.bytes;
    const std::vector<uint64_t> extent =
        rows ? std::vector<uint64_t>{32, 100} : std::vector<uint64_t>{64, 50};
    half.box = {{0, 0}, extent};
    views[1].box = {rows ? std::vector<uint64_t>{32, 0} : std::vector<uint64_t>{0, 50}, extent};
    if (rows) {
      half.view.bytes = all.first(32 * 100 * 2);
      views[1].view.bytes = all.subspan(32 * 100 * 2);
    } else {
      for (size_t row = 0; row < 64; ++row) {
        const Bytes own = all.subspan(row * 200, 200);
        left_.insert(left_.end(), own.begin(), own.begin() + 100);
        right_.insert(right_.end(), own.begin() + 100, own.end());
      }
      half.view.bytes = left_;
      views[1].view.bytes = right_;
    }
    views.push_back(half);
    return views;
  };
  for (const bool rows : {true, true, false, true}) {
    left_.clear();
    right_.clear();
    const PublishReport report = publish(in_boxes(rows));
    EXPECT_TRUE(report.committed && report.warnings.empty());
    EXPECT_TRUE(holds(store, report.version, model));
    model.step();
    publish_next();
    model.step();
  }
}

// Another publisher has gone on: more versions than this snapshot has ever seen.
TEST_P(BehindTest, TheHeadOfAnother) {
  publish_versions(2);
  publisher.reset();
  for (const uint64_t others : {uint64_t{2}, kMostBehind}) {
    PublishOptions elsewhere = options;
    elsewhere.snapshot = SnapshotInMemory{};
    auto another = Publisher::open(store, elsewhere);
    ASSERT_TRUE(another.ok());
    for (uint64_t i = 0; i < others; ++i) {
      ASSERT_TRUE(another->publish(model.views()).ok());
      model.step();
    }
    another = Status(Code::kNotFound, "closed");
    reopen();
    EXPECT_EQ(held() == 0, others == 2);
    publish_versions(1);
    publisher.reset();
  }
}

// The copies make up for a store that has lost what the snapshot is behind by.
// As a crash or a bad disk leaves it: found before anything is built on it.
// What cannot be kept is fetched: neither fails a version.
TEST_P(BehindTest, NowAndLaterInTurn) {
  publish_versions(3);
  EXPECT_EQ(held(), 0);
  options.snapshot = SnapshotInFolder{folder.path() / "snapshot", false, SnapshotAdvance::kNow};
  reopen();
  EXPECT_EQ(held(), 2);
  publish_versions(2);
  EXPECT_EQ(held(), 4);
  EXPECT_TRUE(parts().empty());
  options.snapshot = SnapshotInFolder{folder.path() / "snapshot", false, SnapshotAdvance::kLater};
  reopen();
  publish_versions(2);
  EXPECT_EQ(held(), 4);
  // Files in memory are not left behind.
  options.snapshot = SnapshotInFolder{folder.path() / "snapshot"};
  reopen();
  EXPECT_EQ(held(), 6);
}

INSTANTIATE_TEST_SUITE_P(Stores, BehindTest, testing::kBehindStores, testing::behind_name);

}  // namespace
}  // namespace deltawire
