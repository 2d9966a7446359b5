// Full versions in transfer: packed while they are read, unpacked while they arrive, in pieces of
// any size.

#include <numeric>

#include "codec/codec.h"
#include "diff/coded_array.h"
#include "diff/device.h"
#include "format/layout.h"
#include "format/packed_file.h"
#include "replica/unpack_stream.h"
#include "store/bodies.h"
#include "store/memory_store.h"
#include "support/published_model.h"
#include "tensor/safetensors.h"
#include "test_files.h"
#include "transfer/fetch_sink.h"

namespace deltawire::testing {
namespace {

// Weights of several dtypes, more than one block, and data that does not compress.
std::string make_plain_file(uint64_t seed, uint64_t rows = 300) {
  const std::vector<TensorSpec> specs = {
      {"a", DType::kBF16, {rows, 500}}, {"b", DType::kF32, {70'001}},
      {"c", DType::kU8, {1'500'000}},   {"d", DType::kF16, {3}},
      {"e", DType::kBF16, {0}},         {"f", DType::kF16, {80'000}}};
  std::mt19937_64 random(seed);
  std::string file = serialise_safetensors_header(specs, {{"format", "pt"}}).value();
  for (const TensorSpec& spec : specs) {
    const size_t size = size_t(tensor_size_bytes(spec.dtype, spec.shape).value());
    for (size_t i = 0; i < size; ++i) {
      const bool top = spec.dtype != DType::kU8 && i % (spec.dtype == DType::kF32 ? 4 : 2) + 1 ==
                                                       (spec.dtype == DType::kF32 ? 4 : 2);
      file.push_back(char(top ? 0x3b + random() % 2 : random()));
    }
  }
  return file;
}

std::string read_in_pieces(const Body& body, size_t most, std::mt19937_64& random) {
  std::string out;
  while (out.size() < body.size()) {
    std::vector<uint8_t> piece(
        std::min<size_t>(1 + random() % most, size_t(body.size()) - out.size()));
    EXPECT_TRUE(body.read(out.size(), piece).ok());
    out.append(piece.begin(), piece.end());
  }
  return out;
}

std::string file_text(const fs::path& path) {
  const auto file = must(MappedFile::open(path));
  return {file->bytes().begin(), file->bytes().end()};
}

struct PackedBodyTest : ::testing::Test {
  const std::string plain = make_plain_file(1);
  std::shared_ptr<const Body> body = pack_body(OwnedBody::of(plain), nullptr).value();
  std::mt19937_64 random{2};
  TempFolder folder;
};

TEST_F(PackedBodyTest, IsTheSameForAnyReads) {
  ASSERT_NE(body, nullptr);
  EXPECT_LT(body->size(), plain.size());
  const std::string whole = read_in_pieces(*body, size_t(body->size()), random);
  for (const size_t most : {1000, 100'000, 700'000}) {
    EXPECT_TRUE(read_in_pieces(*body, most, random) == whole) << most;
  }
  for (int i = 0; i < 30; ++i) {  // in any order
    const size_t at = random() % whole.size();
    std::vector<uint8_t> piece(random() % (whole.size() - at));
    ASSERT_TRUE(body->read(at, piece).ok());
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), as_bytes(whole).begin() + long(at)));
  }
  ThreadPool pool(3);
  const auto by_threads = pack_body(OwnedBody::of(plain), &pool).value();
  EXPECT_TRUE(read_in_pieces(*by_threads, 1 << 20, random) == whole);
  const auto file = parse_packed(as_bytes(whole)).value();
  std::vector<uint8_t> back(size_t(file.plain_bytes));
  ASSERT_TRUE(unpack(file, as_bytes(whole), back, nullptr).ok());
  EXPECT_TRUE(std::string(back.begin(), back.end()) == plain);
}

// Like a GPU: plans a whole array, and codes some of its blocks.
class HostCoder final : public ArrayCoder {
 public:
  HostCoder(Layout layout, Bytes array) : layout_(layout), array_(array) {}
  Result<std::vector<exponents::BlockPlan>> plan() const override {
    std::vector<exponents::BlockPlan> plans;
    for (size_t i = 0; i * block_bytes() < array_.size(); ++i) {
      plans.push_back(exponents::plan_block(layout_, block(i)));
    }
    return plans;
  }
  Status code(size_t first, std::span<const exponents::BlockPlan> plans,
              MutableBytes out) const override {
    exponents::BlockWriter writer(layout_);
    for (const exponents::BlockPlan& plan : plans) {
      const Bytes coded = writer.write(block(first++), plan.base);
      EXPECT_EQ(coded.size(), plan.size_bytes);
      std::copy(coded.begin(), coded.end(), out.begin());
      out = out.subspan(coded.size());
    }
    EXPECT_TRUE(out.empty());
    return {};
  }

 private:
  size_t block_bytes() const { return exponents::kBlockElements * layout_.width; }
  Bytes block(size_t i) const {
    const size_t at = i * block_bytes();
    return array_.subspan(at, std::min(block_bytes(), array_.size() - at));
  }
  const Layout layout_;
  const Bytes array_;
};

// Fails if bytes that are coded elsewhere are read from it.
class PartlyBody final : public Body {
 public:
  PartlyBody(const std::string& text, size_t begin, size_t end)
      : text_(text), begin_(begin), end_(end) {}
  uint64_t size() const noexcept override { return text_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    if (offset < end_ && offset + out.size() > begin_) return io_error("read from the wrong place");
    std::copy_n(text_.begin() + long(offset), out.size(), out.begin());
    return {};
  }

 private:
  const std::string& text_;
  const size_t begin_, end_;
};

TEST_F(PackedBodyTest, TensorsCodedElsewhereGiveTheSameFile) {
  const std::string large = make_plain_file(3, 40'000);  // reads are ahead of what was asked for
  const size_t header = 8 + size_t(load_le<uint64_t>(as_bytes(large).data()));
  const auto entries =
      parse_safetensors_header(std::string_view(large).substr(8, header - 8), large.size() - header)
          .value()
          .entries;
  CodedThere there;
  for (const TensorEntry& entry : entries) {
    if (entry.spec.name != "a" && entry.spec.name != "b") continue;
    there.coders[entry.spec.name] = std::make_shared<HostCoder>(
        layout_of(entry.spec.dtype),
        as_bytes(large).subspan(header + size_t(entry.begin), size_t(entry.end - entry.begin)));
  }
  ASSERT_EQ(entries[0].spec.name, "a");
  const auto partly = std::make_shared<PartlyBody>(large, header + size_t(entries[0].begin),
                                                   header + size_t(entries[1].end));
  const auto here = pack_body(OwnedBody::of(large), nullptr).value();
  const auto packed = must(pack_body(partly, nullptr, there));
  const std::string whole = read_in_pieces(*here, size_t(here->size()), random);
  for (const size_t most : {size_t{50'000}, size_t{3'000'000}, whole.size()}) {
    EXPECT_TRUE(read_in_pieces(*packed, most, random) == whole) << most;
  }
  for (int i = 0; i < 30; ++i) {  // in any order
    const size_t at = random() % whole.size();
    std::vector<uint8_t> piece(random() % (whole.size() - at));
    ASSERT_TRUE(packed->read(at, piece).ok());
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), as_bytes(whole).begin() + long(at)));
  }
}

TEST_F(PackedBodyTest, DoesNotPackNoise) {
  std::string noise = serialise_safetensors_header({{"x", DType::kBF16, {50'000}}}).value();
  for (int i = 0; i < 100'000; ++i) noise.push_back(char(random()));
  EXPECT_EQ(pack_body(OwnedBody::of(noise), nullptr).value(), nullptr);
}

TEST_F(PackedBodyTest, UnpacksWhileItArrives) {
  const std::string packed = read_in_pieces(*body, 1 << 20, random);
  for (const size_t most : {50, 5000, 300'000, 3'000'000}) {
    UnpackStream stream(folder.path() / "plain", packed.size());
    for (size_t at = 0; at < packed.size();) {
      const size_t size = std::min<size_t>(1 + random() % most, packed.size() - at);
      must(stream.take(as_bytes(packed).subspan(at, size)));
      at += size;
    }
    ASSERT_TRUE(stream.finish().ok());
    EXPECT_TRUE(file_text(folder.path() / "plain") == plain) << most;
  }
}

TEST_F(PackedBodyTest, DamageIsAnErrorOrAnotherFile) {
  const std::string packed = read_in_pieces(*body, 1 << 20, random);
  for (int i = 0; i < 200; ++i) {
    std::string bad = packed;
    const size_t at = i % 2 == 0 ? random() % 2000 : random() % bad.size();
    bad[at] = char(bad[at] ^ 1 << random() % 8);
    if (i % 5 == 0) bad.resize(at);
    UnpackStream stream(folder.path() / "plain", packed.size());
    Status status = stream.take(as_bytes(bad));
    if (status.ok()) status = stream.finish();
    EXPECT_TRUE(status.ok() || status.code() == Code::kCorruption ||
                status.code() == Code::kUnsupported)
        << status.to_string();
    EXPECT_FALSE(i % 5 == 0 && status.ok());
  }
}

// A store may deliver pieces in any order, and repeat them after a failure.
TEST_F(PackedBodyTest, AcceptsPiecesInAnyOrderAndTwice) {
  const std::string plain = make_plain_file(3, 8000);  // threads of its own unpack it
  body = pack_body(OwnedBody::of(plain), nullptr).value();
  const std::string packed = read_in_pieces(*body, 1 << 20, random);
  std::vector<std::pair<size_t, size_t>> pieces;
  for (size_t at = 0; at < packed.size();) {
    const size_t size = std::min<size_t>(1 + random() % 200'000, packed.size() - at);
    pieces.emplace_back(at, size);
    if (random() % 4 == 0) pieces.emplace_back(at, size / 2);
    at += size;
  }
  for (int round = 0; round < 5; ++round) {
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::atomic<uint64_t> received{0};
    const std::atomic<bool> stop{false};
    UnpackStream stream(folder.path() / "plain", packed.size());
    const auto sink =
        must(FetchSink::create(folder.path() / "aside", packed.size(), &received, &stop, &stream));
    for (const auto& [at, size] : pieces) {
      ASSERT_TRUE(sink->write(at, as_bytes(packed).subspan(at, size)).ok());
    }
    EXPECT_EQ(sink->finish().value(), digest_of(DigestKind::kSha256, as_bytes(packed)));
    must(sink->followed());
    EXPECT_TRUE(file_text(folder.path() / "plain") == plain);
  }
}

// ---- Arrays that are coded while they are read, and new tensors that are stored this way.

// Reads the same bytes, until `changed` is set.
class ChangingBody final : public Body {
 public:
  explicit ChangingBody(Bytes bytes) : bytes_(bytes) {}
  uint64_t size() const noexcept override { return bytes_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    std::copy_n(bytes_.begin() + long(offset), out.size(), out.begin());
    if (changed) std::fill(out.begin(), out.end(), uint8_t{0});
    return {};
  }
  bool changed = false;

 private:
  const Bytes bytes_;
};

TEST(CodedArray, EqualsTheCodecsPayloadForAnyReads) {
  std::mt19937_64 random(1);
  ThreadPool pool(3);
  for (const uint64_t n : {1000, 65'536, 300'001}) {
    const TestTensor tensor = make_tensor("x", DType::kBF16, {n}, n);
    const Layout layout = layout_of(tensor.dtype);
    const auto plain = std::make_shared<MemoryBody>(Bytes(tensor.bytes));
    const auto body = code_array(layout, plain, &pool).value();
    ASSERT_NE(body, nullptr);
    const auto expected = exponents::encode_array(layout, tensor.bytes, nullptr, nullptr).value();
    ASSERT_EQ(body->size(), expected.size());
    for (const size_t most : {size_t{700}, size_t{50'000}, expected.size()}) {
      std::vector<uint8_t> got(expected.size());
      for (size_t at = 0; at < got.size();) {
        const size_t size = std::min<size_t>(1 + random() % most, got.size() - at);
        ASSERT_TRUE(body->read(at, MutableBytes(got).subspan(at, size)).ok());
        at += size;
      }
      EXPECT_TRUE(got == expected) << n << " in pieces of " << most;
    }
    std::vector<uint8_t> back(tensor.bytes.size());
    ASSERT_TRUE(find_codec(CodecId::kExponents)->apply(layout, expected, back, nullptr).ok());
    EXPECT_TRUE(back == tensor.bytes);
  }
}

TEST(CodedArray, IsNotUsedWhereItDoesNotPay) {
  const TestTensor bytes = make_tensor("x", DType::kU8, {100'000}, 1);
  const auto body = std::make_shared<MemoryBody>(Bytes(bytes.bytes));
  EXPECT_EQ(code_array(layout_of(DType::kU8), body, nullptr).value(), nullptr);
  EXPECT_EQ(code_array(layout_of(DType::kBF16), body, nullptr).value(), nullptr);  // noise
  EXPECT_EQ(code_array(layout_of(DType::kBF16), OwnedBody::of(""), nullptr).value(), nullptr);
}

TEST(CodedArray, DetectsWeightsThatChangeMeanwhile) {
  const TestTensor tensor = make_tensor("x", DType::kBF16, {200'000}, 1);
  const auto plain = std::make_shared<ChangingBody>(tensor.bytes);
  const auto body = code_array(layout_of(DType::kBF16), plain, nullptr).value();
  plain->changed = true;
  std::vector<uint8_t> out(size_t(body->size()));
  EXPECT_EQ(body->read(0, out).code(), Code::kIo);
}

// Larger than what is encoded at once.
TEST(CodedArray, CodesLargeNewTensorsInADelta) {
  DW_LABEL(long);
  for (const bool raw : {false, true}) {
    const std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
    PublishOptions options{.limits = {.threads = 2, .memory_bytes = uint64_t{32} << 20},
                           .schema_change = true};
    if (raw) options.codec = "raw";
    Model model;
    model.tensors = {make_tensor("old", DType::kBF16, {4 << 20}, 1)};
    auto publisher = must(Publisher::open(store, options));
    ASSERT_TRUE(publisher.publish(model.views()).ok());
    model.tensors.push_back(make_tensor("new", DType::kBF16, {1 << 20}, 2));
    model.tensors.push_back(make_tensor("noise", DType::kU8, {1 << 21}, 3));
    const auto report = must(publisher.publish(model.views()));
    EXPECT_FALSE(report.full) << report.reason;
    EXPECT_TRUE(holds(store, 1, model));
    // 4 MiB, 2 of them weights.
    EXPECT_EQ(report.bytes < (uint64_t{36} << 20) / 10, !raw) << report.bytes;
  }
}

// ---- Several readers at a time, each with small reads.

constexpr uint64_t kPiece = FetchedPieces::kPieceBytes, kStep = 128 << 10;

struct Source {
  std::vector<uint8_t> bytes;
  uint64_t fetched = 0;
  FetchedPieces* pieces;

  Source(FetchedPieces* of, uint64_t size) : bytes(size), pieces(of) {
    for (uint64_t i = 0; i < size; ++i) bytes[i] = uint8_t(i * 2654435761U >> 13);
  }
  Status read(uint64_t offset, MutableBytes out) {
    return pieces->read(this, bytes.size(), offset, out, [&](uint64_t begin, MutableBytes piece) {
      fetched += piece.size();
      std::copy_n(bytes.begin() + ptrdiff_t(begin), piece.size(), piece.begin());
      return Status();
    });
  }
  bool reads_right(uint64_t offset, uint64_t size) {
    std::vector<uint8_t> out(size);
    return read(offset, out).ok() &&
           std::equal(out.begin(), out.end(), bytes.begin() + ptrdiff_t(offset));
  }
};

TEST(FetchedPieces, FetchesEachPieceOnceForReadersInTurn) {
  FetchedPieces pieces;
  Source source(&pieces, 9 * kPiece + 12345);
  for (const uint64_t readers : {1, 2, 3}) {  // each has its part, from end to end
    source.fetched = 0;
    const uint64_t part = (source.bytes.size() + readers - 1) / readers / kPiece * kPiece + kPiece;
    for (uint64_t at = 0; at < part; at += kStep) {
      for (uint64_t r = 0; r < readers; ++r) {
        const uint64_t begin = r * part + at;
        const uint64_t end = std::min<uint64_t>((r + 1) * part, source.bytes.size());
        if (begin >= end) continue;
        ASSERT_TRUE(source.reads_right(begin, std::min(kStep, end - begin)));
      }
    }
    EXPECT_EQ(source.fetched, source.bytes.size()) << readers;
    EXPECT_EQ(pieces.num_pieces(), 0);
  }
}

TEST(FetchedPieces, SecondReadSeesTheNewState) {
  FetchedPieces pieces;
  Source source(&pieces, kPiece / 2);
  ASSERT_TRUE(source.reads_right(0, kPiece / 2));
  source.bytes[7] ^= 1;
  EXPECT_TRUE(source.reads_right(0, kPiece / 2));
}

TEST(FetchedPieces, LimitsPiecesOfReadersThatStop) {
  FetchedPieces pieces;
  Source source(&pieces, 4 * FetchedPieces::kMostPieces * kPiece / 2);
  for (uint64_t at = 0; at < source.bytes.size(); at += kPiece) {
    ASSERT_TRUE(source.reads_right(at, 100));
    EXPECT_LE(pieces.num_pieces(), FetchedPieces::kMostPieces);
  }
  EXPECT_EQ(pieces.num_pieces(), FetchedPieces::kMostPieces);
  Source other(&pieces, 1000);
  ASSERT_TRUE(other.reads_right(10, 100));
  pieces.forget(&source);
  EXPECT_EQ(pieces.num_pieces(), 1);
  ASSERT_TRUE(other.reads_right(100, 900));
  EXPECT_EQ(pieces.num_pieces(), 0);
}

TEST(FetchedPieces, FailureKeepsNothing) {
  FetchedPieces pieces;
  uint8_t out[10];
  const auto fails = [](uint64_t, MutableBytes) { return io_error("the device is gone"); };
  EXPECT_EQ(pieces.read(&pieces, 100, 0, out, fails).message(), "the device is gone");
  EXPECT_EQ(pieces.num_pieces(), 0);
}

}  // namespace
}  // namespace deltawire::testing
