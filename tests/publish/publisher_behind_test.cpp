// A snapshot on disk that stays behind the chain: what is read of it is the head, whatever happened
// to it or to its log, and it is brought to the head in the end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "chain/names.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire {
namespace {

using testing::holds;
using testing::HookedStore;
using testing::make_tensor;
using testing::Model;
using testing::TempFolder;
namespace fs = std::filesystem;

constexpr uint64_t kMostBehind = 8;

struct Behind {
  const char* name;
  bool local;      // a store in a folder
  uint64_t scale;  // of the model
  uint64_t memory_bytes;
};

class BehindTest : public ::testing::TestWithParam<Behind> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>(
      GetParam().local
          ? std::shared_ptr<Store>(std::make_shared<DirectoryStore>(folder.path() / "store"))
          : std::make_shared<MemoryStore>());
  Model model = Model::make(GetParam().scale);
  PublishOptions options;
  std::atomic<size_t> num_reads = 0;  // of weights, from the store
  std::vector<uint8_t> left_, right_;  // halves of a tensor
  std::optional<Publisher> publisher;

  void SetUp() override {
    options.limits.threads = 2;
    options.limits.memory_bytes = GetParam().memory_bytes;
    options.snapshot =
        SnapshotInFolder{folder.path() / "snapshot", false, SnapshotAdvance::kLater};
    store->before_get = [this](std::string_view name) {
      if (name.starts_with(kPartPrefix) || name.starts_with(kFullPrefix)) ++num_reads;
      return Status();
    };
    reopen();
  }
  // As another process would.
  void reopen() {
    publisher.reset();
    auto opened = Publisher::open(store, options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    publisher.emplace(std::move(*opened));
  }
  PublishReport publish(const std::vector<PublishTensor>& tensors) {
    auto report = publisher->publish(tensors);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? std::move(*report) : PublishReport{};
  }
  // The next version, without a warning, and it is what was published.
  void publish_next() {
    const PublishReport report = publish(model.views());
    EXPECT_TRUE(report.committed);
    for (const std::string& warning : report.warnings) ADD_FAILURE() << warning;
    EXPECT_TRUE(holds(store, report.version, model)) << "version " << report.version;
  }
  void publish_versions(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      publish_next();
      model.step();
    }
  }
  fs::path checkpoint() const { return folder.path() / "snapshot" / "checkpoint"; }
  uint64_t held() const {
    const auto state = read_replica_state(checkpoint());
    EXPECT_TRUE(state.ok() && !state->patching_to);
    return state.ok() ? state->version : UINT64_MAX;
  }
  std::vector<fs::path> parts() const {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder.path() / "snapshot" / "parts", error)) {
      found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

void overwrite_byte(const fs::path& path, uint64_t at, char bits) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(ptrdiff_t(at));
  const char was = char(file.get());
  file.seekp(ptrdiff_t(at));
  file.put(char(was ^ bits));
}

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
  for (const char* codec : {"gaps", "raw", "xor-zstd", "indices", "fastest", "tight", "auto"}) {
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
    const std::vector<uint64_t> extent = rows ? std::vector<uint64_t>{32, 100}
                                              : std::vector<uint64_t>{64, 50};
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

TEST_P(BehindTest, CopiesThatAreDamagedAreFetchedAgain) {
  publish_versions(4);
  const std::vector<fs::path> copies = parts();
  ASSERT_EQ(copies.size(), 3);
  std::vector<std::string> contents;
  for (const fs::path& copy : copies) contents.push_back(testing::read_file(copy));
  const std::string& first = contents[0];
  const auto write = [](const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  };
  std::vector<std::function<void()>> damages;
  damages.emplace_back([&] { fs::remove(copies[0]); });
  damages.emplace_back([&] { fs::remove_all(copies[0].parent_path()); });
  damages.emplace_back([&] { write(copies[0], contents[1]); });  // another version's
  damages.emplace_back([&] { write(copies[0], first + "x"); });
  damages.emplace_back([&] {
    fs::remove(copies[0]);
    fs::create_directory(copies[0]);
    write(copies[0] / "a file", "in the way");
  });
  for (const double share : {0.0, 0.3, 0.99}) {
    damages.emplace_back(
        [&, share] { write(copies[0], first.substr(0, size_t(share * double(first.size())))); });
  }
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.999}) {
    damages.emplace_back([&, share] {
      overwrite_byte(copies[0], uint64_t(share * double(first.size())), '\x10');
    });
  }
  for (size_t i = 0; i < damages.size(); ++i) {
    publisher.reset();
    for (size_t c = 0; c < copies.size(); ++c) write(copies[c], contents[c]);
    damages[i]();
    reopen();
    const PublishReport report = publish(model.views());
    EXPECT_EQ(report.committed, i == 0) << "damage " << i;
    EXPECT_EQ(report.version, 4) << "damage " << i;
    EXPECT_TRUE(report.warnings.empty()) << "damage " << i;
    EXPECT_EQ(held(), 0) << "damage " << i;
    EXPECT_TRUE(holds(store, 4, model)) << "damage " << i;
    if (!GetParam().local) {
      EXPECT_EQ(testing::read_file(copies[0]), first) << "damage " << i;
    }
  }
}

// The copies make up for a store that has lost what the snapshot is behind by.
TEST_P(BehindTest, PartsThatTheStoreHasLost) {
  publish_versions(4);
  publisher.reset();
  for (const std::string& name : testing::objects_of(*store, kPartPrefix)) {
    ASSERT_TRUE(store->remove(name).ok());
  }
  reopen();
  const PublishReport report = publish(model.views());
  EXPECT_EQ(report.version, 4);
  EXPECT_TRUE(report.warnings.empty());
}

// As a crash or a bad disk leaves it: found before anything is built on it.
TEST_P(BehindTest, ASnapshotThatIsDamaged) {
  publish_versions(3);
  const fs::path weights = checkpoint() / "model.safetensors";
  const auto size = fs::file_size(weights);
  // While it is open, and between processes.
  for (const bool open : {true, false, true}) {
    if (!open) publisher.reset();
    overwrite_byte(weights, size / 2, '\x7f');
    if (!open) reopen();
    const PublishReport report = publish(model.views());
    EXPECT_TRUE(report.committed);
    EXPECT_EQ(report.warnings.size(), open ? 1 : 0);
    EXPECT_TRUE(holds(store, report.version, model));
    model.step();
  }
  // Half-way to a version, and nothing says how it goes on.
  publisher.reset();
  const fs::path state_file = checkpoint() / ".deltawire" / "state.json";
  std::string state = testing::read_file(state_file);
  const size_t at = state.find("\"patching_to\"");
  ASSERT_NE(at, std::string::npos);
  state.replace(at, state.find_first_of(",}", at) - at, "\"patching_to\":5");
  std::ofstream(state_file, std::ios::binary) << state;
  reopen();
  publish_versions(2);
}

TEST_P(BehindTest, ASnapshotOfAnotherRun) {
  publish_versions(3);
  publisher.reset();
  auto other = std::make_shared<MemoryStore>();
  EXPECT_FALSE(Publisher::open(other, options).ok());
  options.new_run = true;
  auto opened = Publisher::open(other, options);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto report = opened->publish(model.views());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->version, 0);
  EXPECT_TRUE(holds(other, 0, model));
}

// What cannot be kept is fetched: neither fails a version.
TEST_P(BehindTest, NoRoomForCopies) {
  publish_versions(1);
  std::ofstream(folder.path() / "snapshot" / "parts") << "in the way";
  publish_versions(1);
  reopen();
  publish_versions(3);
}

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

TEST_P(BehindTest, DigestsThatDoNotAddUpAreFolded) {
  store = std::make_shared<HookedStore>();
  fs::remove_all(folder.path() / "snapshot");
  options.digest = DigestKind::kXxh3_128;
  reopen();
  publish_versions(3);
  EXPECT_EQ(held(), 2);
}

INSTANTIATE_TEST_SUITE_P(Stores, BehindTest,
                         ::testing::Values(Behind{"Remote", false, 24, uint64_t{2} << 30},
                                           Behind{"Local", true, 24, uint64_t{2} << 30},
                                           Behind{"Blocks", false, 60, uint64_t{2} << 30},
                                           Behind{"Slices", true, 100, uint64_t{32} << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltawire
