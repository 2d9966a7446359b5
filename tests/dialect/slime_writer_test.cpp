// What slime's files cannot say is refused before anything is written; what is cut short is no
// version.
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

class SlimeWriterTest : public ::testing::Test {
 protected:
  Status create(const ForeignDraft& draft, const ForeignOptions& options = {}) {
    return dialect_.create(store_, draft, options).status();
  }
  bool is_empty() { return store_->list("", "", 10)->empty(); }

  const Dialect& dialect_ = *find_dialect("slime");
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::vector<TestTensor> before_ = {make_tensor("a", DType::kBF16, {300}, 1),
                                     make_tensor("b", DType::kF32, {20}, 2)};
  std::vector<TestTensor> after_ = changed(before_, 0.2);
  ForeignDraft draft_{
      .version = 2, .base = 1, .full = false, .tensors = {}, .removed = {}, .added = {}};
};

TEST_F(SlimeWriterTest, RefusesRemovedTensors) {
  draft_.removed = {"head"};
  EXPECT_FAILS(create(draft_), Code::kUnsupported, "\"head\"", "gone", "full");
  EXPECT_TRUE(is_empty());
  draft_.full = true;
  EXPECT_TRUE(dialect_.create(store_, draft_, {}).ok());
}

TEST_F(SlimeWriterTest, RefusesTensorsThatAreNewOrOfAnotherForm) {
  draft_.added = {"head"};
  EXPECT_FAILS(create(draft_), Code::kUnsupported, "\"head\"", "dtype or shape", "full");
  EXPECT_TRUE(is_empty());
}

TEST_F(SlimeWriterTest, RefusesPositionsOver4GiB) {
  draft_.tensors = {{"experts", DType::kBF16, {1ULL << 31}}};
  EXPECT_FAILS(create(draft_, {.encoding = "overwrite", .checksum = ""}), Code::kUnsupported,
               "\"experts\"", "4294967296", "take `xor`");
  EXPECT_TRUE(is_empty());
  EXPECT_TRUE(dialect_.create(store_, draft_, {}).ok());
  draft_.tensors = {{"experts", DType::kU8, {(1ULL << 32) - 1}}};
  EXPECT_TRUE(dialect_.create(store_, draft_, {.encoding = "overwrite", .checksum = ""}).ok());
}

TEST_F(SlimeWriterTest, RefusesVersion0) {
  draft_.version = draft_.base = 0;
  draft_.full = true;
  EXPECT_FAILS(create(draft_), Code::kUnsupported, "count from 1", "pull version 0");
}

TEST_F(SlimeWriterTest, RefusesBasesThatComeLater) {
  draft_.base = 2;
  EXPECT_FAILS(create(draft_), Code::kInvalidArgument, "version 2", "base 2");
}

TEST_F(SlimeWriterTest, RefusesOptionsThatItDoesNotKnow) {
  EXPECT_FAILS(create(draft_, {.encoding = "tight", .checksum = ""}), Code::kInvalidArgument,
               "xor or overwrite", "tight");
  EXPECT_FAILS(create(draft_, {.encoding = "", .checksum = "sum128"}), Code::kInvalidArgument,
               "xxh3-128, blake3 or adler32", "sum128");
  ForeignOptions ranks{.world = 2};
  EXPECT_FAILS(create(draft_, ranks), Code::kUnsupported, "2 ranks");
}

TEST_F(SlimeWriterTest, RefusesNamesThatNoFileCanHave) {
  draft_.tensors = {{"__metadata__", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), Code::kUnsupported, "__metadata__", "rename");
  draft_.tensors = {{"\xff", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), Code::kUnsupported, "rename");
  draft_.tensors = {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), Code::kInvalidArgument, "\"a\"", "twice");
}

TEST_F(SlimeWriterTest, RefusesVersionsThatAreThere) {
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, before_, after_).ok());
  EXPECT_FAILS(create(draft_), Code::kConflict, "weight_v000002", "already");
  std::vector<TestTensor> held = before_;
  EXPECT_TRUE(apply_foreign(dialect_, *store_, 2, &held).ok());
}

TEST_F(SlimeWriterTest, TakesTensorsInTheirOrderAndAll) {
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  const auto writer = must(dialect_.create(store_, draft_, {}));
  EXPECT_FAILS(writer->add(draft_.tensors[1], before_[1].bytes, after_[1].bytes, nullptr),
               Code::kInvalidArgument, "\"b\" is not the next", "\"a\"");
  EXPECT_FAILS(writer->add(draft_.tensors[0], {}, after_[0].bytes, nullptr), Code::kInvalidArgument,
               "\"a\"", "600 bytes", "0 old");
  EXPECT_FAILS(writer->finish(), Code::kInvalidArgument, "\"a\"", "not added");
}

TEST_F(SlimeWriterTest, RemovesWhatItPutWhenItIsGivenUp) {
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  {
    const auto writer = dialect_.create(store_, draft_, {.buffer_bytes = 1});
    ASSERT_TRUE((*writer)->add(draft_.tensors[0], before_[0].bytes, after_[0].bytes, nullptr).ok());
    EXPECT_FALSE(is_empty());
    EXPECT_TRUE(dialect_.versions(*store_)->empty());
  }
  EXPECT_TRUE(is_empty());
}

// What a killed writer leaves: parts of another cut, and no index.
TEST_F(SlimeWriterTest, CleansUpAfterOneThatWasKilled) {
  ASSERT_TRUE(store_->put("weight_v000002/model-00000-of-00007.safetensors", MemoryBody("x")).ok());
  must(store_->put("weight_v000002/model-00001-of-00007.safetensors.tmp", MemoryBody("x")));
  EXPECT_TRUE(dialect_.versions(*store_)->empty());
  EXPECT_FALSE(*dialect_.recognises(*store_));
  EXPECT_FAILS(dialect_.open(*store_, 2), Code::kNotFound, "weight_v000002",
               "model.safetensors.index.json", "killed");
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, before_, after_).ok());
  EXPECT_EQ(store_->list("weight_v000002/", "", 10)->size(), 2U);
  std::vector<TestTensor> held = before_;
  ASSERT_TRUE(apply_foreign(dialect_, *store_, 2, &held).ok());
  expect_same(held, after_);
}

// Both export one chain to one place. Neither takes away what the other has written.
TEST_F(SlimeWriterTest, LeavesATwinThatFinishesFirstAlone) {
  ForeignOptions small{.buffer_bytes = 1};
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  const auto add_all = [&](ForeignWriter& writer) {
    for (size_t i = 0; i < draft_.tensors.size(); ++i) {
      ASSERT_TRUE(writer.add(draft_.tensors[i], before_[i].bytes, after_[i].bytes, nullptr).ok());
    }
  };
  const auto expect_whole = [&] {
    std::vector<TestTensor> held = before_;
    must(apply_foreign(dialect_, *store_, 2, &held));
    expect_same(held, after_);
  };
  auto first = dialect_.create(store_, draft_, small).value();
  add_all(*first);
  auto second = dialect_.create(store_, draft_, small).value();
  ASSERT_TRUE(first->finish().ok());
  expect_whole();
  add_all(*second);
  second.reset();
  expect_whole();
}

}  // namespace
}  // namespace deltawire::testing
