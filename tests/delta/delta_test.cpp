// Deltas from end to end: diff, open, apply, refuse.
#include "deltawire/delta.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include "checkpoints.h"
#include "codec/codec.h"
#include "delta/delta_reader.h"
#include "format/delta_part.h"
#include "format/state_digest.h"

namespace deltawire::testing {
namespace {

constexpr DType kAllDTypes[] = {
    DType::kBool, DType::kU8,  DType::kI8,  DType::kF8_E5M2, DType::kF8_E4M3, DType::kF8_E8M0,
    DType::kF4,   DType::kI16, DType::kU16, DType::kF16,     DType::kBF16,    DType::kI32,
    DType::kU32,  DType::kF32, DType::kC64, DType::kF64,     DType::kI64,     DType::kU64};

std::vector<TestTensor> every_dtype() {
  std::vector<TestTensor> tensors;
  for (const DType dtype : kAllDTypes) {
    tensors.push_back(
        make_tensor("t." + std::string(dtype_name(dtype)), dtype, {40, 32}, tensors.size()));
  }
  tensors.push_back(make_tensor("scalar", DType::kF32, {}, 91));
  tensors.push_back(make_tensor("empty", DType::kBF16, {0, 7}, 92));
  tensors.push_back(make_tensor("big", DType::kBF16, {700, 1000}, 93));
  return tensors;
}

class DeltaTest : public ::testing::Test {
 protected:
  TempFolder folder;
  fs::path at(const std::string& name) const { return folder.path() / name; }
  const fs::path a = at("a.safetensors"), b = at("b.safetensors"), c = at("c.safetensors"),
                 d = at("d.safetensors");
  // Writes old and new checkpoints of every dtype as files a and b.
  void make_pair(double density = 0.02) {
    auto tensors = every_dtype();
    write_checkpoint(a, tensors);
    for (size_t i = 0; i < tensors.size(); ++i) change(&tensors[i], density, i);
    write_checkpoint(b, tensors);
  }
  void expect_applies() {
    must(apply_delta(d, a, c, {}));
    EXPECT_EQ(read_file(c), read_file(b));
  }
  Result<DiffReport> diff(DiffOptions options = {}, const std::string& out = "d.safetensors") {
    return diff_checkpoints(a, b, at(out), options);
  }
};

TEST_F(DeltaTest, EveryCodecRestoresTheNewFileExactly) {
  make_pair();
  std::vector<std::string> codecs = {"auto"};
  for (const Codec* codec : all_codecs()) codecs.emplace_back(codec->name());
  for (const std::string& codec : codecs) {
    const auto report = must(diff({.codec = codec}));
    EXPECT_EQ(report.delta_bytes, fs::file_size(d));
    expect_applies();
  }
}

TEST_F(DeltaTest, BytesDoNotDependOnTheNumberOfThreads) {
  make_pair();
  DiffOptions options{.threads = 1};
  ASSERT_TRUE(diff(options, "one.safetensors").ok());
  options.threads = 5;
  ASSERT_TRUE(diff(options, "five.safetensors").ok());
  EXPECT_EQ(read_file(at("one.safetensors")), read_file(at("five.safetensors")));
}

TEST_F(DeltaTest, UnchangedFilesGiveASmallDelta) {
  make_pair(0);
  const auto report = must(diff());
  EXPECT_EQ(report.num_changed, 0);
  EXPECT_LT(report.delta_bytes, 600);
  expect_applies();
}

TEST_F(DeltaTest, ShardedFoldersKeepLayoutAndOtherFiles) {
  auto tensors = every_dtype();
  write_sharded(at("old"), tensors, 3);
  for (size_t i = 0; i < tensors.size(); ++i) change(&tensors[i], 0.05, i + 100);
  write_sharded(at("new"), tensors, 3);
  DiffOptions options;
  options.part_bytes = 4096;  // several parts
  const auto report = must(diff_checkpoints(at("old"), at("new"), at("delta"), options));
  EXPECT_GT(report.num_parts, 1);
  must(apply_delta(at("delta"), at("old"), at("out"), {}));
  for (const auto& file : fs::directory_iterator(at("new"))) {
    EXPECT_EQ(read_file(at("out") / file.path().filename()), read_file(file.path())) << file.path();
  }
  EXPECT_TRUE(must(verify_checkpoints(at("new"), at("out"), {})).differences.empty());
}

TEST_F(DeltaTest, TensorsMayAppearDisappearAndChangeShape) {
  std::vector<TestTensor> before = {
      make_tensor("gone", DType::kF32, {9}, 1), make_tensor("grown", DType::kBF16, {4, 4}, 2),
      make_tensor("kept", DType::kBF16, {300}, 3), make_tensor("recast", DType::kF32, {8}, 4)};
  std::vector<TestTensor> after = {make_tensor("grown", DType::kBF16, {5, 4}, 5), before[2],
                                   make_tensor("recast", DType::kBF16, {8}, 6),
                                   make_tensor("born", DType::kI64, {3}, 7)};
  change(&after[1], 0.1, 8);
  for (const bool sharded : {false, true}) {
    const auto old_path = sharded ? at("old") : at("old.safetensors");
    const auto new_path = sharded ? at("new") : at("new.safetensors");
    const auto out = sharded ? at("out") : at("out.safetensors");
    if (sharded) {
      write_sharded(old_path, before, 2);
      write_sharded(new_path, after, 2);
    } else {
      write_checkpoint(old_path, before);
      write_checkpoint(new_path, after);
    }
    const auto report = must(diff_checkpoints(old_path, new_path, d, {}));
    EXPECT_EQ(report.num_added, 3);
    EXPECT_EQ(report.num_removed, 1);
    must(apply_delta(d, old_path, out, {}));
    EXPECT_TRUE(must(verify_checkpoints(new_path, out, {})).differences.empty());
  }
}

TEST_F(DeltaTest, RefusesAnyOtherBaseBeforeWriting) {
  make_pair();
  ASSERT_TRUE(diff().ok());
  // The new state instead of the base.
  EXPECT_FAILS(apply_delta(d, b, c, {}), kBaseMismatch, "tensor \"", "expected", "got");
  // One wrong bit in a tensor that the delta does not change.
  auto tensors = every_dtype();
  auto touched = tensors;
  for (size_t i = 0; i + 1 < touched.size(); ++i) touched[i] = tensors[i];
  change(&touched.back(), 0.01, 5);
  write_checkpoint(b, touched);
  ASSERT_TRUE(diff().ok());
  tensors[3].bytes[17] ^= 1;
  write_checkpoint(at("other.safetensors"), tensors);
  EXPECT_FAILS(apply_delta(d, at("other.safetensors"), c, {}), kBaseMismatch, "another one differs",
               "expected", "got");
  // A missing tensor; another dtype.
  tensors = every_dtype();
  tensors.pop_back();
  write_checkpoint(at("other.safetensors"), tensors);
  EXPECT_FAILS(apply_delta(d, at("other.safetensors"), c, {}), kBaseMismatch, "\"big\"",
               "no such tensor");
  tensors.push_back(make_tensor("big", DType::kF16, {700, 1000}, 93));
  write_checkpoint(at("other.safetensors"), tensors);
  EXPECT_FAILS(apply_delta(d, at("other.safetensors"), c, {}), kBaseMismatch, "\"big\"", "BF16",
               "F16");
  EXPECT_FALSE(fs::exists(c));
  EXPECT_EQ(folder.num_files(), 4);  // a, b, d, other: no temporary file is left
}

TEST_F(DeltaTest, DetectsEveryTruncationAndBitFlip) {
  std::vector<TestTensor> tensors = {make_tensor("w", DType::kBF16, {40, 20}, 1),
                                     make_tensor("n", DType::kF32, {5}, 2)};
  write_checkpoint(a, tensors);
  change(&tensors[0], 0.05, 3);
  change(&tensors[1], 0.5, 4);
  write_checkpoint(b, tensors);
  ASSERT_TRUE(diff().ok());
  const std::string good = read_file(d);
  ASSERT_LT(good.size(), 2000);
  for (size_t length = 0; length < good.size(); ++length) {
    const auto path = folder.put("bad.safetensors", good.substr(0, length));
    const auto result = open_delta(path);
    ASSERT_TRUE(is_failure(result.status(), Code::kCorruption, "bad.safetensors"))
        << "length " << length;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = char(bad[bit / 8] ^ (1 << (bit % 8)));
    const auto path = folder.put("bad.safetensors", bad);
    const auto result = open_delta(path);
    ASSERT_FALSE(result.ok()) << "bit " << bit;
    const Code code = result.status().code();
    // A flip in a name or a version may give another error code, but is never accepted.
    ASSERT_TRUE(code == Code::kCorruption || code == Code::kUnsupported ||
                code == Code::kInvalidArgument)
        << "bit " << bit << ": " << result.status().to_string();
  }
}

TEST_F(DeltaTest, ChecksPartsAgainstTheirIndex) {
  make_pair(0.2);
  ASSERT_TRUE(diff({.part_bytes = 20000}, "delta").ok());
  const auto part = at("delta") / "part-00001.safetensors",
             index = at("delta") / "delta.index.json";
  const std::string good = read_file(part), good_index = read_file(index);
  const auto write = [](const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  };
  const auto open = [&] { return open_delta(at("delta")).status(); };
  ASSERT_TRUE(open().ok());
  std::string bad = good;
  bad[bad.size() - 3] ^= 4;
  write(part, bad);
  EXPECT_FAILS(open(), kCorruption, "part-00001", "sha-256", "expected", "got");
  write(part, good + "x");
  EXPECT_FAILS(open(), kCorruption, "part-00001", "size");
  fs::remove(part);
  EXPECT_FAILS(open(), kNotFound, "part-00001");
  write(part, good);
  for (size_t bit = 0; bit < good_index.size() * 8; bit += 3) {
    bad = good_index;
    bad[bit / 8] = char(bad[bit / 8] ^ (1 << (bit % 8)));
    write(index, bad);
    ASSERT_FALSE(open().ok()) << "bit " << bit;
  }
  std::string hostile = good_index;
  hostile.replace(hostile.find("part-00001"), 10, "../../etc/");
  write(index, hostile);
  EXPECT_FAILS(open(), kCorruption, "part name");
}

TEST_F(DeltaTest, BoxesOfSeveralRanksFormOneTensor) {
  TestTensor before = make_tensor("w", DType::kBF16, {64, 48}, 1), after = before;
  change(&after, 0.1, 2);
  write_checkpoint(a, {before});
  write_checkpoint(b, {after});
  // Two ranks hold the left and right halves of every row; both boxes go into one part here.
  std::vector<TensorChange> changes;
  std::vector<std::vector<uint8_t>> storage;
  storage.reserve(4);
  for (uint64_t rank = 0; rank < 2; ++rank) {
    const Box box{{0, rank * 24}, {64, 24}};
    for (const TestTensor* tensor : {&before, &after}) {
      storage.emplace_back(64 * 24 * 2);
      copy_box_out(box, DType::kBF16, before.shape, tensor->bytes, storage.back());
    }
    changes.push_back(
        {"w", DType::kBF16, before.shape, box, storage[rank * 2], storage[rank * 2 + 1]});
  }
  const auto state = [](const TestTensor& tensor) {
    return state_digest(
        {{tensor.name, tensor.dtype, tensor.shape, digest_of(DigestKind::kSum128, tensor.bytes)}});
  };
  must(write_part(d, changes, state(before), state(after), {}));
  expect_applies();

  changes[1].box = changes[0].box;  // twice the same elements
  ASSERT_TRUE(write_part(d, changes, state(before), state(after), {}).ok());
  EXPECT_FAILS(open_delta(d), kCorruption, "covers too");
  changes[1].box = {{0, 25}, {64, 24}};
  EXPECT_FAILS(write_part(d, changes, state(before), state(after), {}), kInvalidArgument,
               "leaves dimension 1");
}

TEST_F(DeltaTest, CopiesTensorsWithReservedLookingNames) {
  std::vector<TestTensor> tensors = {
      make_tensor("#1#odd", DType::kBF16, {50}, 1),
      make_tensor("a name with spaces = and \"quotes\"", DType::kBF16, {50}, 2)};
  write_checkpoint(a, tensors);
  for (auto& tensor : tensors) change(&tensor, 0.5, 3);
  write_checkpoint(b, tensors);
  ASSERT_TRUE(diff().ok());
  expect_applies();
}

TEST_F(DeltaTest, VerifyReportsTheFirstDifference) {
  std::vector<TestTensor> tensors = {make_tensor("w", DType::kBF16, {10, 20}, 1),
                                     make_tensor("v", DType::kF32, {4}, 2)};
  write_checkpoint(a, tensors);
  store_le(&tensors[0].bytes[(3 * 20 + 7) * 2], uint16_t(0x8000));
  store_le(&tensors[0].bytes[(9 * 20 + 19) * 2], uint16_t(0x7fc1));
  write_checkpoint(b, tensors);
  const auto report = must(verify_checkpoints(a, b, {}));
  ASSERT_EQ(report.differences.size(), 1);
  EXPECT_EQ(report.differences[0].tensor, "w");
  EXPECT_EQ(report.differences[0].num_different, 2);
  EXPECT_EQ(report.differences[0].first->coordinate, (Shape{3, 7}));
  EXPECT_EQ(report.differences[0].first->new_bits, "0x8000");
}

TEST_F(DeltaTest, VerifyCountsLikeDiff) {
  std::vector<TestTensor> left = {make_tensor("complex", DType::kC64, {5, 7}, 1),
                                  make_tensor("left", DType::kU8, {3}, 2)};
  std::vector<TestTensor> right = {left[0], make_tensor("right", DType::kU8, {3}, 3)};
  write_checkpoint(a, left);
  uint8_t* const element = &right[0].bytes[(2 * 7 + 3) * 8];
  for (const size_t byte : {0, 7}) element[byte] ^= 0x10;  // both halves of one number
  write_checkpoint(b, right);
  const auto report = must(verify_checkpoints(a, b, {}));
  EXPECT_EQ(report.num_tensors, 3);
  ASSERT_EQ(report.differences.size(), 3);
  const TensorDifference& complex = report.differences[0];
  EXPECT_EQ(complex.first->coordinate, (Shape{2, 3}));
  EXPECT_EQ(complex.first->new_bits.size(), 18U);  // the whole number
  const auto changes = must(diff());
  EXPECT_EQ(changes.num_changed, 2);
  EXPECT_EQ(complex.num_different, changes.num_changed);
  EXPECT_EQ(complex.num_elements, changes.num_elements);
}

TEST_F(DeltaTest, MetadataChangesAreReportedNotApplied) {
  const std::vector<TestTensor> tensors = {make_tensor("w", DType::kBF16, {9}, 1)};
  write_checkpoint(a, tensors, {{"format", "pt"}, {"step", "1"}, {"x", ""}});
  write_checkpoint(b, tensors, {{"step", "2"}, {"format", "pt"}, {"y", ""}});
  const auto report = must(diff());
  EXPECT_EQ(report.metadata_changed, (std::vector<std::string>{"step", "x", "y"}));
  ASSERT_TRUE(apply_delta(d, a, c, {}).ok());
  EXPECT_EQ(read_file(c), read_file(a));
  write_checkpoint(b, tensors, {{"x", ""}, {"step", "1"}, {"format", "pt"}});
  EXPECT_TRUE(diff()->metadata_changed.empty());  // the order is not a difference
}

TEST_F(DeltaTest, RejectsSinglePartsAndIndexes) {
  make_pair(0.2);
  ASSERT_TRUE(diff({.part_bytes = 20000}, "delta").ok());
  const auto apply = [&](const fs::path& delta) { return apply_delta(delta, a, c, {}).status(); };
  EXPECT_FAILS(apply(at("delta") / "part-00001.safetensors"), kInvalidArgument,
               "part-00001.safetensors: one of the", "parts", "give the folder");
  EXPECT_FAILS(apply(at("delta") / "delta.index.json"), kInvalidArgument, "the index of a delta",
               "give its folder");
  fs::copy_file(at("delta") / "part-00001.safetensors", at("part-00001.safetensors"));
  EXPECT_FAILS(apply(at("part-00001.safetensors")), kCorruption, "state after the patch",
               "one part of several?");
  fs::remove(at("delta") / "delta.index.json");
  EXPECT_TRUE(
      is_failure(apply(at("delta")), Code::kNotFound, "parts of a delta without delta.index.json"));
  EXPECT_FAILS(verify_checkpoints(a, at("delta"), {}), kInvalidArgument,
               "a delta, not a checkpoint");
  EXPECT_FALSE(fs::exists(c));
}

TEST_F(DeltaTest, RejectsDeltasAsCheckpoints) {
  make_pair();
  ASSERT_TRUE(diff().ok());
  write_sharded(at("folder"), every_dtype(), 2);
  const auto verify = [&](const fs::path& path) {
    return verify_checkpoints(a, path, {}).status();
  };
  EXPECT_FAILS(verify(d), kInvalidArgument, "d.safetensors: a delta, not a checkpoint");
  EXPECT_FAILS(apply_delta(d, d, c, {}), kInvalidArgument,
               "d.safetensors: a delta, not a checkpoint");
  EXPECT_FAILS(verify(at("folder") / "model.safetensors.index.json"), kInvalidArgument,
               "the index of a checkpoint", "give its folder");
}

TEST_F(DeltaTest, SignedZerosAndNaNsAreOrdinaryValues) {
  TestTensor tensor{"w", DType::kBF16, {8}, std::vector<uint8_t>(16)};
  const uint16_t old_bits[8] = {0x0000, 0x8000, 0x7fc0, 0x7f80, 0xff80, 0x7fff, 0x0001, 0x3f80};
  const uint16_t new_bits[8] = {0x8000, 0x0000, 0x7fc1, 0xff80, 0x7f80, 0xffff, 0x8001, 0x3f80};
  std::memcpy(tensor.bytes.data(), old_bits, 16);
  write_checkpoint(a, {tensor});
  std::memcpy(tensor.bytes.data(), new_bits, 16);
  write_checkpoint(b, {tensor});
  for (const Codec* codec : all_codecs()) {
    const auto report = must(diff({.codec = std::string(codec->name())}));
    EXPECT_EQ(report.num_changed, 7) << codec->name();
    expect_applies();
  }
}

TEST_F(DeltaTest, CancellationLeavesNoFiles) {
  make_pair();
  DiffOptions options;
  options.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_FAILS(diff(options), kCancelled, "stopped");
  EXPECT_FAILS(diff(options, "delta"), kCancelled, "stopped");
  EXPECT_EQ(folder.num_files(), 2);
  ASSERT_TRUE(diff().ok());
  EXPECT_FAILS(apply_delta(d, a, c, {0, options.progress}), kCancelled, "stopped");
  EXPECT_EQ(folder.num_files(), 3);
}

// Cancels at every call of the progress callback: neither output nor temporary files exist. After
// the output is in place the callback is not called again.
TEST_F(DeltaTest, CanBeCancelledUntilTheResultIsInPlace) {
  auto tensors = every_dtype();
  write_sharded(at("old"), tensors, 3);
  for (size_t i = 0; i < tensors.size(); ++i) change(&tensors[i], 0.2, i);
  write_sharded(at("new"), tensors, 3);
  make_pair(0.2);
  ASSERT_TRUE(diff({}, "ready.safetensors").ok());
  const auto check = [&](const std::string& out, const std::function<Status(Progress)>& work) {
    const size_t before = folder.num_files();
    int calls = 0;
    ASSERT_TRUE(work([&](uint64_t, uint64_t) { return ++calls > 0; }).ok());
    ASSERT_TRUE(fs::exists(at(out)));
    fs::remove_all(at(out));
    for (int last = 1; last <= calls; ++last) {
      int call = 0;
      bool there = false;
      const Status status = work([&](uint64_t, uint64_t) {
        there = there || fs::exists(at(out));
        return ++call < last;
      });
      EXPECT_FAILS(status, kCancelled, "stopped") << out << " " << last;
      EXPECT_FALSE(there);
      EXPECT_EQ(folder.num_files(), before) << out << " " << last;
    }
    EXPECT_GE(calls, 4) << out;
  };
  const auto diff_to = [&](const std::string& out, bool folders) {
    return [=, this](Progress progress) {
      return diff_checkpoints(folders ? at("old") : a, folders ? at("new") : b, at(out),
                              {.part_bytes = 100000, .progress = std::move(progress)})
          .status();
    };
  };
  check("d.safetensors", diff_to("d.safetensors", false));
  check("parts", diff_to("parts", true));
  check("c.safetensors", [&](Progress progress) {
    return apply_delta(at("ready.safetensors"), a, c, {0, std::move(progress)}).status();
  });
  ASSERT_TRUE(diff_to("ready", true)({}).ok());
  check("out", [&](Progress progress) {
    return apply_delta(at("ready"), at("old"), at("out"), {0, std::move(progress)}).status();
  });
}

// Runs `work` in a child whose files may not exceed `limit` bytes: a disk that fills up.
int exit_status_with_file_limit(rlim_t limit, const std::function<Status()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &small);
    ::_exit(int(work().code()));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(DeltaTest, FullDiskFailsAndLeavesNoFiles) {
  make_pair(0.3);
  EXPECT_EQ(exit_status_with_file_limit(5000, [&] { return diff().status(); }), int(Code::kIo));
  EXPECT_EQ(exit_status_with_file_limit(5000,
                                        [&] {
                                          const Status status = diff({}, "delta").status();
                                          // The message has the given name, not a temporary one.
                                          const std::string own = at("delta").string() + "/part-";
                                          return status.message().starts_with(own)
                                                     ? status
                                                     : internal_error(status.message());
                                        }),
            int(Code::kIo));
  EXPECT_EQ(folder.num_files(), 2);
  ASSERT_TRUE(diff().ok());
  EXPECT_EQ(exit_status_with_file_limit(100000, [&] { return apply_delta(d, a, c, {}).status(); }),
            int(Code::kIo));
  EXPECT_EQ(folder.num_files(), 3);
}

TEST_F(DeltaTest, RejectsInvalidOutputsAndOptions) {
  make_pair();
  EXPECT_FAILS(diff({}, "missing/d.safetensors"), kNotFound, "missing");
  fs::create_directory(at("taken"));
  folder.put("taken/file", "x");
  EXPECT_FAILS(diff({}, "taken"), kInvalidArgument, "already exists");
  EXPECT_FAILS(diff({.codec = "best"}), kInvalidArgument, "\"best\"", "tight");
  EXPECT_FAILS(apply_delta(a, a, c, {}), kInvalidArgument, "not a deltawire delta");
}

}  // namespace
}  // namespace deltawire::testing
