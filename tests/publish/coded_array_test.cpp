// Arrays that are coded while they are read, and new tensors that come that way.
#include "publish/coded_array.h"

#include "codec/codec.h"
#include "format/layout.h"
#include "store/bodies.h"
#include "store/memory_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// Reads the same bytes, until it is told to read others.
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

TEST(CodedArray, IsThePayloadOfTheCodecHoweverItIsRead) {
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

TEST(CodedArray, NoneWhereItDoesNotPay) {
  const TestTensor bytes = make_tensor("x", DType::kU8, {100'000}, 1);
  const auto body = std::make_shared<MemoryBody>(Bytes(bytes.bytes));
  EXPECT_EQ(code_array(layout_of(DType::kU8), body, nullptr).value(), nullptr);
  EXPECT_EQ(code_array(layout_of(DType::kBF16), body, nullptr).value(), nullptr);  // noise
  EXPECT_EQ(code_array(layout_of(DType::kBF16), OwnedBody::of(""), nullptr).value(), nullptr);
}

TEST(CodedArray, WeightsThatChangeMeanwhileAreAnError) {
  const TestTensor tensor = make_tensor("x", DType::kBF16, {200'000}, 1);
  const auto plain = std::make_shared<ChangingBody>(tensor.bytes);
  const auto body = code_array(layout_of(DType::kBF16), plain, nullptr).value();
  plain->changed = true;
  std::vector<uint8_t> out(size_t(body->size()));
  EXPECT_EQ(body->read(0, out).code(), Code::kIo);
}

// Larger than what is encoded at once.
TEST(CodedArray, LargeNewTensorsAreCodedInADelta) {
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

}  // namespace
}  // namespace deltawire::testing
