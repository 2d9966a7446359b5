// Parts are uploaded while the next ones are made.
#include "transfer/part_stream.h"

#include <latch>

#include "checkpoints.h"
#include "codec/codec.h"
#include "store/memory_store.h"
#include "support/hooked_store.h"

namespace deltawire::testing {
namespace {

DeltaEntry raw_entry(const std::string& name, Bytes bytes) {
  DeltaEntry entry{.tensor = name,
                   .dtype = DType::kU8,
                   .shape = {bytes.size()},
                   .codec = CodecId::kRaw,
                   .num_changed = bytes.size(),
                   .new_digest = digest_of(DigestKind::kSum128, bytes)};
  return entry;
}

PartStreamOptions options(uint64_t part_bytes, uint64_t memory_bytes = UINT64_MAX) {
  return {.folder = "parts/x/",
          .base = digest_of(DigestKind::kXxh3_128, {}),
          .part_bytes = part_bytes,
          .memory_bytes = memory_bytes};
}

Status add(PartStream* stream, const std::string& name, size_t size) {
  std::vector<uint8_t> bytes(size, uint8_t(name[0]));
  DeltaEntry entry = raw_entry(name, bytes);
  return stream->add(std::move(entry), Payload::own(std::move(bytes)));
}

TEST(PartStreamTest, NamesOrdersAndHashesItsParts) {
  MemoryStore store;
  PartStream stream(store, options(1000), {}, {});
  const std::vector<uint8_t> viewed(1500, 9);
  for (const std::string name : {"a", "b", "c"}) ASSERT_TRUE(add(&stream, name, 400).ok());
  ASSERT_TRUE(stream.add(raw_entry("v", viewed), {viewed, nullptr}).ok());  // has a part of its own
  ASSERT_TRUE(add(&stream, "d", 10).ok());
  ASSERT_TRUE(stream.finish({"gone"}).ok());
  const std::vector<PartRef> parts = stream.parts();
  ASSERT_EQ(parts.size(), 4);
  std::vector<std::vector<std::string>> names;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].name, "parts/x/part-0000" + std::to_string(i) + ".safetensors");
    const auto text = must(store.get(parts[i].name, 1 << 20));
    EXPECT_EQ(parts[i].size_bytes, text.size());
    EXPECT_EQ(parts[i].sha256, digest_of(DigestKind::kSha256, testing::as_bytes(text)));
    const auto part = must(parse_part(testing::as_bytes(text)));
    EXPECT_FALSE(part.info.has_target());
    EXPECT_EQ(part.info.removed.size(), i == 3 ? 1 : 0);
    names.emplace_back();
    for (const PayloadView& view : part.entries) names.back().push_back(view.entry.tensor);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}, {"v"}, {"d"}}));
  ASSERT_TRUE(stream.upload_phase().has_value());
}

TEST(PartStreamTest, SplitsPartsAmongUploadThreads) {
  constexpr size_t kMiB = size_t{1} << 20;
  MemoryStore store;
  PartStream stream(store, options(64 * kMiB, 512 * kMiB), {}, {});  // four uploads at once
  ASSERT_TRUE(add(&stream, "first", 40 * kMiB).ok());
  stream.expect(8 * kMiB);
  for (const std::string name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    ASSERT_TRUE(add(&stream, name, kMiB).ok());
  }
  stream.expect_no_more();
  for (const std::string name : {"i", "j", "k"}) ASSERT_TRUE(add(&stream, name, kMiB).ok());
  ASSERT_TRUE(stream.finish({}).ok());
  std::vector<uint64_t> sizes;
  for (const PartRef& part : stream.parts()) sizes.push_back(part.size_bytes / kMiB);
  EXPECT_EQ(sizes, (std::vector<uint64_t>{40, 2, 2, 2, 2, 3}));
}

TEST(PartStreamTest, EmptyDeltaHasNoPartUnlessATensorWasRemoved) {
  MemoryStore store;
  PartStream nothing(store, options(1000), {}, {});
  ASSERT_TRUE(nothing.finish({}).ok());
  EXPECT_TRUE(nothing.parts().empty());
  PartStream removal(store, options(1000), {}, {});
  ASSERT_TRUE(removal.finish({"gone"}).ok());
  ASSERT_EQ(removal.parts().size(), 1);
  const auto text = store.get(removal.parts()[0].name, 1 << 20);
  const auto part = must(parse_part(testing::as_bytes(*text)));
  EXPECT_EQ(part.info.removed, (std::vector<std::string>{"gone"}));
}

TEST(PartStreamTest, AbandonedPublishRemovesItsParts) {
  MemoryStore store;
  {
    PartStream stream(store, options(100), {}, {});
    for (const std::string name : {"a", "b", "c"}) ASSERT_TRUE(add(&stream, name, 100).ok());
  }
  EXPECT_TRUE(store.list("", "", 10)->empty());
}

// Puts wait until they are released; one of them may fail.
struct Gate {
  std::atomic<int> puts{0};
  std::latch latch{1};
  int fail_at = -1;

  Status pass(std::string_view name) {
    const int number = puts++;
    latch.wait();
    return number == fail_at ? io_error("disk full at " + std::string(name)) : Status();
  }
};

TEST(PartStreamTest, AddBlocksAtTheMemoryLimit) {
  Gate gate;
  HookedStore store;
  store.before_put = [&](std::string_view name) { return gate.pass(name); };
  std::atomic<int> added{0};
  PartStream stream(store, options(100, 250), {}, {});
  std::thread producer([&] {
    for (const std::string name : {"a", "b", "c", "d", "e"}) {
      EXPECT_TRUE(add(&stream, name, 100).ok());
      ++added;
    }
  });
  while (gate.puts < 2) std::this_thread::yield();
  EXPECT_LE(added, 2);  // two parts of 100 bytes fit; the third waits
  gate.latch.count_down();
  producer.join();
  ASSERT_TRUE(stream.finish({}).ok());
  EXPECT_EQ(stream.parts().size(), 5);
}

TEST(PartStreamTest, FailedPutFailsTheStream) {
  Gate gate;
  gate.fail_at = 1;
  gate.latch.count_down();
  HookedStore store;
  store.before_put = [&](std::string_view name) { return gate.pass(name); };
  PartStream stream(store, options(100, 100), {}, {});
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = add(&stream, "a" + std::to_string(i), 100);
  if (status.ok()) status = stream.finish({});
  EXPECT_FAILS(status, kIo, "disk full");
  EXPECT_FAILS(stream.finish({}), kIo, "disk full");
  stream.abandon();
  EXPECT_TRUE(store.list("", "", 10)->empty());
}

TEST(PartStreamTest, WaitingCanBeCancelled) {
  Gate gate;
  HookedStore store;
  store.before_put = [&](std::string_view name) { return gate.pass(name); };
  std::atomic<bool> stop{false};
  PartStream stream(store, options(100, 100), {}, [&] { return !stop; });
  ASSERT_TRUE(add(&stream, "a", 100).ok());
  stop = true;
  EXPECT_FAILS(add(&stream, "b", 100), kCancelled);
  gate.latch.count_down();
}

}  // namespace
}  // namespace deltawire::testing
