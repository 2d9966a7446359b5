// A source that is modified during a publish: the committed version matches its manifest, or
// nothing is committed.
#include <fcntl.h>
#include <unistd.h>

#include "chain/hop_records.h"
#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "maintain/walk_parts.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// Reads a body before the put, calls `meddle`, and then puts it: the source is read twice.
class SlowStore final : public ForwardingStore {
 public:
  SlowStore() : ForwardingStore(std::make_shared<MemoryStore>()) {}
  Status put(std::string_view name, const Body& body) override {
    if (name.starts_with(prefix)) {
      std::vector<uint8_t> bytes(body.size());
      DW_RETURN_IF_ERROR(body.read(0, bytes));
      const std::lock_guard lock(mutex_);
      if (auto act = std::exchange(meddle, nullptr)) act();
    }
    return inner().put(name, body);
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    if (name.starts_with(prefix)) {
      const std::lock_guard lock(mutex_);
      if (auto act = std::exchange(meddle, nullptr)) act();
    }
    return inner().put_if_absent(name, body);
  }
  std::string prefix = "-";
  std::function<void()> meddle;

 private:
  std::mutex mutex_;
};

class PublisherSourceTest : public ::testing::Test {
 protected:
  std::shared_ptr<SlowStore> store = std::make_shared<SlowStore>();
  Model model = Model::make();
  TempFolder folder;

  Publisher open(PublishOptions options = {}) {
    options.schema_change = true;
    options.limits.threads = 2;
    return must(Publisher::open(store, options));
  }
  void meddle_at(const std::string& prefix, std::function<void()> act) {
    store->prefix = prefix;
    store->meddle = std::move(act);
  }
  void spoil() {
    for (auto& tensor : model.tensors) tensor.bytes[tensor.bytes.size() / 2] ^= 0x55;
  }
  void publish(Publisher* publisher) {
    EXPECT_TRUE(holds(store, must(publisher->publish(model.views())).version, model));
  }
  // Checks that the whole chain decodes.
  void check() {
    const auto chain = must(Chain::open(store, {}));
    const auto checked = must(check_states(chain, {}));
    EXPECT_TRUE(checked.problems.empty()) << checked.problems[0];
  }
};

TEST_F(PublisherSourceTest, DetectsChangesDuringAFullVersion) {
  DW_LABEL(races);
  Publisher publisher = open();
  meddle_at("full/", [&] { spoil(); });
  EXPECT_FAILS(publisher.publish(model.views()), kIo, "changed while it was read");
  EXPECT_EQ(head_of(store), std::nullopt);
  EXPECT_TRUE(objects_of(*store, "full/").empty());
  publish(&publisher);
  model.step();
  publish(&publisher);
  check();
}

// New tensors are coded before the put: the version has the state that was read.
TEST_F(PublisherSourceTest, NewTensorChangingDuringThePutIsConsistent) {
  DW_LABEL(races);
  Publisher publisher = open();
  publish(&publisher);
  model.tensors.push_back(make_tensor("late", DType::kBF16, {32, 8}, 77));
  const Model before = model;
  meddle_at("parts/", [&] { model.tensors.back().bytes[7] ^= 1; });
  must(publisher.publish(model.views()));
  EXPECT_EQ(head_of(store), 1);
  EXPECT_TRUE(holds(store, 1, before));
  publish(&publisher);
  EXPECT_TRUE(holds(store, 2, model));
  check();
}

TEST_F(PublisherSourceTest, DetectsChangesBetweenCommitAndSnapshot) {
  DW_LABEL(races);
  Publisher publisher = open();
  for (int i = 0; i < 3; ++i) {
    const Model committed = model;
    meddle_at("manifests/", [&] { spoil(); });
    const auto report = must(publisher.publish(model.views()));
    EXPECT_TRUE(holds(store, report.version, committed));
    ASSERT_EQ(report.warnings.size(), 1U);
    EXPECT_TRUE(contains(report.warnings[0], "snapshot"));
  }
  publish(&publisher);
  EXPECT_EQ(head_of(store), 3);
  check();
}

TEST_F(PublisherSourceTest, DropsAnAnchorWhoseTensorsChangeMeanwhile) {
  DW_LABEL(races);
  Publisher publisher = open({.anchors = Anchors{.every = 1}});
  publish(&publisher);
  model.step();
  const Model committed = model;
  meddle_at("full/", [&] { spoil(); });
  const auto report = must(publisher.publish(model.views()));
  EXPECT_FALSE(report.anchored);
  EXPECT_FALSE(report.warnings.empty());
  EXPECT_TRUE(holds(store, report.version, committed));
  const auto chain = Chain::open(store, {});
  EXPECT_TRUE(list_hops(*chain, 0, 10, SIZE_MAX)->empty());
  publish(&publisher);
  check();
}

// Changed before the anchor is started: both of its reads agree with each other.
TEST_F(PublisherSourceTest, DropsAnAnchorThatDiffersFromItsVersion) {
  DW_LABEL(races);
  Publisher publisher = open({.anchors = Anchors{.every = 1}});
  publish(&publisher);
  model.step();
  meddle_at("manifests/", [&] { spoil(); });
  EXPECT_FALSE(must(publisher.publish(model.views())).anchored);
  check();
}

// ---- checkpoints on disk

class CheckpointSourceTest : public PublisherSourceTest {
 protected:
  const fs::path file = folder.path() / "model.safetensors";

  void save() { write_checkpoint(file, model.tensors); }
  // Like a trainer that opens the old file and overwrites its contents.
  void save_in_place() {
    const fs::path other = folder.path() / "other.safetensors";
    write_checkpoint(other, model.tensors);
    fs::copy_file(other, file, fs::copy_options::overwrite_existing);
    fs::remove(other);
  }
  void expect_refused(Publisher* publisher) {
    const auto before = head_of(store);
    const auto failed = publisher->publish_checkpoint(file);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.status().code(), Code::kIo) << failed.status().to_string();
    for (const std::string& word :
         {file.string(), std::string("changed while it was read"), std::string("publish again")}) {
      EXPECT_TRUE(contains(failed.status().message(), word)) << failed.status().to_string();
    }
    EXPECT_EQ(head_of(store), before);
  }
  void publish_file(Publisher* publisher) {
    EXPECT_TRUE(holds(store, must(publisher->publish_checkpoint(file)).version, model));
  }
};

TEST_F(CheckpointSourceTest, DetectsOverwritingInPlace) {
  for (const bool with_folder : {false, true}) {
    store = std::make_shared<SlowStore>();
    save();
    PublishOptions options;
    if (with_folder) options.snapshot = SnapshotInFolder{folder.path() / "snapshot"};
    Publisher publisher = open(options);
    for (int i = 0; i < 2; ++i) {
      meddle_at(i == 0 ? "full/" : "parts/", [&] {
        model.step();
        save_in_place();
      });
      expect_refused(&publisher);
      publish_file(&publisher);
      model.step();
      save_in_place();
    }
    publish_file(&publisher);
    EXPECT_EQ(head_of(store), 2);
    check();
  }
}

TEST_F(CheckpointSourceTest, DetectsTruncation) {
  model = Model::make(40);  // several pages
  save();
  Publisher publisher = open();
  for (int i = 0; i < 2; ++i) {
    meddle_at(i == 0 ? "full/" : "parts/", [&] { fs::resize_file(file, 100); });
    expect_refused(&publisher);
    save();
    publish_file(&publisher);
    model.step();
    save();
  }
  check();
}

TEST_F(CheckpointSourceTest, ReplacementByRenamePublishesTheOldFile) {
  save();
  Publisher publisher = open();
  const Model first = model;
  meddle_at("full/", [&] {
    model.step();
    save();
  });
  must(publisher.publish_checkpoint(file));
  EXPECT_TRUE(holds(store, 0, first));
  publish_file(&publisher);
  check();
}

TEST_F(CheckpointSourceTest, DetectsChangedSideFiles) {
  save();
  folder.put("config.json", "{\"a\": 1}\n");
  Publisher publisher = open();
  meddle_at("full/", [&] { folder.put("config.json", "{\"a\": 2, \"b\": 3}\n"); });
  EXPECT_FAILS(publisher.publish_checkpoint(folder.path()), kIo, "config.json");
  EXPECT_EQ(head_of(store), std::nullopt);
  must(publisher.publish_checkpoint(folder.path()));
}

// Without file times to compare, as for a live trainer, and with a writer that never stops: every
// committed version decodes, even with split tensors or many of them.
TEST_F(CheckpointSourceTest, CommitsConsistentVersionsWithAConstantWriter) {
  for (const bool cut : {false, true}) {
    store = std::make_shared<SlowStore>();
    model.tensors = {make_tensor("large", DType::kBF16, {4096, 512}, 1),
                     make_tensor("small", DType::kBF16, {256, 64}, 2)};
    save();
    const auto checkpoint = must(Checkpoint::open(file));
    std::vector<PublishTensor> tensors;
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      tensors.push_back({tensor.view, {}});
    }
    PublishOptions options;
    if (cut) options.limits.memory_bytes = uint64_t{32} << 20;
    Publisher publisher = open(options);
    ASSERT_TRUE(publisher.publish(tensors).ok());

    std::atomic<bool> stop = false;
    std::thread writer([&] {
      const int fd = ::open(file.c_str(), O_WRONLY);
      const uint64_t begin = checkpoint.files()[0].header_bytes;
      const uint64_t size = checkpoint.files()[0].bytes.size() - begin;
      for (uint64_t i = 0; !stop; ++i) {
        const uint8_t byte = uint8_t(i);
        const auto at = off_t(begin + i * 2654435761u % size);
        if (::pwrite(fd, &byte, 1, at) != 1) break;
      }
      ::close(fd);
    });
    for (int i = 0; i < 8; ++i) {
      const auto report = publisher.publish(tensors);
      if (!report.ok()) {  // only cut tensors are read twice
        EXPECT_TRUE(cut);
        EXPECT_FAILS(report, kIo, "changed while it was read");
      }
    }
    stop = true;
    writer.join();
    EXPECT_TRUE(publisher.publish(tensors).ok());
    check();
  }
}

}  // namespace
}  // namespace deltawire::testing
