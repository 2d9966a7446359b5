#include "tensor/safetensors.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using namespace std::string_literals;

TEST(SafetensorsSerialise, WritesExactBytes) {
  const auto header = must(serialise_safetensors_header(
      {{"w", DType::kBF16, {2, 3}}, {"b", DType::kF32, {}}}, {{"z", "1"}, {"a", "2"}}));
  EXPECT_EQ(header, frame(R"({"__metadata__":{"z":"1","a":"2"},)"
                          R"("w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                          R"("b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})"
                          "       "));
  EXPECT_EQ(header.size() % 8, 0U);
}

TEST(SafetensorsSerialise, PadsTheHeaderTo8Bytes) {
  EXPECT_EQ(*serialise_safetensors_header({}), frame("{}      "));
  for (size_t i = 0; i < 16; ++i) {
    const auto header =
        must(serialise_safetensors_header({{std::string(i, 'n'), DType::kU8, {0}}}));
    EXPECT_EQ(header.size() % 8, 0U);
    EXPECT_TRUE(parse_safetensors(as_bytes(header)).ok());
  }
}

TEST(SafetensorsSerialise, EveryDTypeRoundTrips) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i <= size_t(DType::kU64); ++i) {
    specs.push_back({"t" + std::to_string(i), DType(i), {2, 4}});
    specs.push_back({"empty" + std::to_string(i), DType(i), {0, 4}});
    if (dtype_bits(DType(i)) >= 8) specs.push_back({"scalar" + std::to_string(i), DType(i), {}});
  }
  const uint64_t size = *data_size_bytes(specs);
  std::string file = *serialise_safetensors_header(specs);
  for (uint64_t i = 0; i < size; ++i) file += char(i * 7);
  const auto view = must(parse_safetensors(as_bytes(file)));
  ASSERT_EQ(view.tensors.size(), specs.size());
  std::string joined;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& tensor = view.tensors[i];
    EXPECT_EQ((TensorSpec{tensor.name, tensor.dtype, tensor.shape}), specs[i]);
    joined += as_string(tensor.bytes);
  }
  EXPECT_EQ(joined, file.substr(view.data_offset));
}

TEST(SafetensorsSerialise, UnicodeAndEscapesRoundTrip) {
  const std::string odd = "caf\xC3\xA9 \xF0\x9F\x98\x80 \"\\/\b\f\n\r\t\x01\x7f\0end"s;
  const Metadata metadata = {{odd, odd}, {"", ""}};
  const auto header = must(serialise_safetensors_header({{odd, DType::kU8, {0}}}, metadata));
  const auto view = must(parse_safetensors(as_bytes(header)));
  EXPECT_EQ(view.metadata, metadata);
  EXPECT_EQ(view.tensors[0].name, odd);
}

TEST(SafetensorsSerialise, RejectsWhatParseRejects) {
  DW_LABEL(long);
  const auto refused = [](const std::vector<TensorSpec>& specs, const Metadata& metadata,
                          std::string_view phrase) {
    return is_failure(serialise_safetensors_header(specs, metadata).status(),
                      Code::kInvalidArgument, phrase);
  };
  const TensorSpec w{"w", DType::kU8, {1}};
  EXPECT_TRUE(refused({w, w}, {}, "tensor \"w\": name is used twice"));
  EXPECT_TRUE(refused({{"__metadata__", DType::kU8, {1}}}, {}, "reserved"));
  EXPECT_TRUE(refused({{"\xFF", DType::kU8, {1}}}, {}, "UTF-8"));
  EXPECT_TRUE(refused({{"w", DType::kF4, {3}}}, {}, "tensor \"w\": F4 [3] does not fill"));
  EXPECT_TRUE(refused({{"w", DType::kU8, {1ULL << 63, 2}}}, {}, "over 2^64 elements"));
  EXPECT_TRUE(refused({{"w", DType::kU8, Shape(65, 1)}}, {}, "over 64 dimensions"));
  EXPECT_TRUE(refused({{"v", DType::kU8, {1ULL << 63}}, {"w", DType::kU8, {1ULL << 63}}}, {},
                      "tensor \"w\": tensors take over 2^64 bytes"));
  EXPECT_TRUE(refused({}, {{"k", "1"}, {"k", "2"}}, "metadata key \"k\": used twice"));
  EXPECT_TRUE(refused({}, {{"k", "\xC3"}}, "metadata key \"k\": not valid UTF-8"));
  EXPECT_TRUE(refused({}, {{"k", std::string(kMaxHeaderBytes, 'x')}}, "over the limit"));
}

}  // namespace
}  // namespace deltawire::testing
