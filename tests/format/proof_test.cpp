// Processes that hold boxes of tensors prove together which version they hold.
#include "format/proof.h"

#include "deltawire/tensor.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::vector<uint8_t> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

struct Model {
  std::vector<uint8_t> wide = random_bytes(24 * 50 * 2, 1), flat = random_bytes(77 * 4, 2);
  Schema schema{{{"flat", DType::kF32, {77}}, {"wide", DType::kBF16, {24, 50}}}};
  Manifest manifest;
  Model() {
    manifest.version = 5;
    manifest.digests = {digest_of(DigestKind::kSum128, flat), digest_of(DigestKind::kSum128, wide)};
  }
  HeldPiece whole_flat() const { return {"flat", DType::kF32, {77}, {}, flat}; }
  // A box with its contents in memory that the caller owns.
  HeldPiece box(Shape offset, Shape extent, std::vector<uint8_t>* contents) const {
    const Box box{std::move(offset), std::move(extent)};
    contents->resize(box.extent[0] * box.extent[1] * 2);
    copy_box_out(box, DType::kBF16, {24, 50}, wide, *contents);
    return {"wide", DType::kBF16, {24, 50}, box, *contents};
  }
};

Proof proof_of(std::vector<HeldPiece> pieces, unsigned threads = 1) {
  Proof proof;
  must(proof.add(pieces, threads));
  return proof;
}

// The proof as another process receives it.
Proof sent(const Proof& proof) { return must(Proof::parse(proof.to_text())); }

TEST(Proof, CombinesRanksWithDifferentBoxes) {
  const Model model;
  std::vector<uint8_t> a, b, c, d;
  // 25 columns of bf16: the boxes split words.
  Proof first = proof_of({model.box({0, 0}, {13, 25}, &a), model.whole_flat()});
  const Proof second = proof_of({model.box({0, 25}, {13, 25}, &b), model.whole_flat()}, 3);
  const Proof third = proof_of({model.box({13, 0}, {11, 7}, &c), model.box({13, 7}, {11, 43}, &d)});
  ASSERT_TRUE(first.add(sent(second)).ok());
  ASSERT_TRUE(first.add(sent(third)).ok());
  must(first.check(model.schema, model.manifest));
  EXPECT_EQ(first.digests()->at("wide"), model.manifest.digests[1]);
}

TEST(Proof, NamesATensorWithOneWrongBit) {
  const Model model;
  std::vector<uint8_t> a, b;
  const HeldPiece left = model.box({0, 0}, {24, 30}, &a), right = model.box({0, 30}, {24, 20}, &b);
  b[17] ^= 1;
  Proof all = proof_of({left, model.whole_flat()});
  ASSERT_TRUE(all.add(proof_of({right})).ok());
  EXPECT_FAILS(all.check(model.schema, model.manifest), kBaseMismatch,
               "the weights held are not those of version 5: tensor \"wide\": expected");
}

TEST(Proof, DetectsGapsAndOverlapsBeforeComparingSums) {
  const Model model;
  std::vector<uint8_t> a, b;
  Proof gap = proof_of({model.box({0, 0}, {24, 30}, &a), model.box({0, 32}, {24, 18}, &b)});
  EXPECT_FAILS(gap.digests(), kInvalidArgument,
               "tensor \"wide\": its boxes have 2304 of its 2400 bytes");
  Proof twice = proof_of({model.box({0, 0}, {24, 30}, &a), model.box({0, 28}, {24, 22}, &b)});
  EXPECT_FAILS(twice.digests(), kInvalidArgument,
               "tensor \"wide\": boxes 0,0+24,30 and 0,28+24,22 overlap");
  EXPECT_FAILS(proof_of({model.whole_flat()}).check(model.schema, model.manifest), kBaseMismatch,
               "tensor \"wide\" is missing");
}

TEST(Proof, CopiesOfABoxCountOnceAndMustAgree) {
  const Model model;
  std::vector<uint8_t> a;
  const HeldPiece box = model.box({0, 0}, {24, 30}, &a);
  Proof all = proof_of({box});
  const Proof same = proof_of({box});
  a[3] ^= 128;
  const Proof other = proof_of({box});
  EXPECT_TRUE(all.add(same).ok());
  EXPECT_FAILS(all.add(other), kBaseMismatch,
               "copies of the same weights differ: tensor \"wide\", box 0,0+24,30");
}

TEST(Proof, IgnoresRanksThatHoldNothing) {
  const Model model;
  std::vector<uint8_t> a, nothing;
  Proof all = proof_of({model.box({0, 0}, {24, 50}, &a), model.whole_flat()});
  ASSERT_TRUE(all.add(sent(proof_of({model.box({3, 5}, {0, 7}, &nothing)}))).ok());
  must(all.check(model.schema, model.manifest));
}

TEST(Proof, InconsistentSumsAreReported) {
  Model model;
  std::vector<uint8_t> all;
  const Proof proof = proof_of({model.box({0, 0}, {24, 50}, &all), model.whole_flat()});
  EXPECT_TRUE(proof.check(model.schema, model.manifest).ok());
  Manifest boxed = model.manifest;
  boxed.boxes["wide"] = {{Box{{0, 0}, {12, 50}}, model.manifest.digests[0]}};
  EXPECT_FAILS(proof.check(model.schema, boxed), kUnsupported,
               "was published box by box, without the sums");
  // With sums, the tensor's digest is that of its bytes.
  boxed.boxes["wide"][0].sums.emplace();
  EXPECT_TRUE(proof.check(model.schema, boxed).ok());
}

TEST(Proof, ErrorsNameTheMistake) {
  const Model model;
  Proof proof;
  HeldPiece piece = model.whole_flat();
  piece.bytes = piece.bytes.first(8);
  EXPECT_FAILS(proof.add({{piece}}), kInvalidArgument,
               "tensor \"flat\": 8 bytes were given, its box has 308");
  piece = model.whole_flat();
  piece.box = {{70}, {8}};
  EXPECT_FAILS(proof.add({{piece}}), kInvalidArgument, "tensor \"flat\"");
  ASSERT_TRUE(proof.add({{model.whole_flat()}}).ok());
  piece = model.whole_flat();
  piece.dtype = DType::kI32;
  EXPECT_FAILS(proof.add({{piece}}), kInvalidArgument,
               "tensor \"flat\": is F32 [77] here and I32 [77] there");
}

TEST(Proof, RejectsInvalidText) {
  const std::string good = proof_of({Model().whole_flat()}).to_text();
  ASSERT_TRUE(Proof::parse(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Proof::parse(std::string_view(good).substr(0, size)).ok()) << size;
  }
  for (
      const char* bad :
      {"[]", "{}", R"({"format":"proof/2","tensors":[]})", R"({"format":"proof/1"})",
       R"({"format":"proof/1","tensors":[["a","F32",[2],[["-","1:2:3:0"]]]]})",
       R"({"format":"proof/1","tensors":[["a","F33",[2],[]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[-2],[]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[2],[["1+5","1:2:14:0"]]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[2],[["0+1","1:2:4:0"],["0+1","1:3:4:0"]]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[2],[]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[2],[["-","1,2,8,0"]]]]})",
       R"({"format":"proof/1","tensors":[["a","F32",[1099511627776,1099511627776],[["0,0+1,1","1:2:4:0"]]]]})"}) {
    EXPECT_EQ(Proof::parse(bad).status().code(), Code::kCorruption) << bad;
  }
}

}  // namespace
}  // namespace deltawire::testing
