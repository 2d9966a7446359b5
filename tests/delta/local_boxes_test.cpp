// Every sharding of a publisher combined with every sharding of a receiver gives the same bits.
#include "delta/local_boxes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "delta/encode_items.h"
#include "format/layout.h"
#include "test_files.h"

namespace deltawire {
namespace {

using Boxes = std::vector<Box>;

struct Tensor {
  DType dtype;
  Shape shape;
  std::vector<uint8_t> before, after;

  Tensor(DType type, Shape form, double density) : dtype(type), shape(std::move(form)) {
    before.resize(tensor_size_bytes(dtype, shape).value());
    std::mt19937_64 random(before.size());
    for (size_t i = 0; i < before.size(); ++i) before[i] = uint8_t(random());
    if (dtype == DType::kBF16) {
      for (size_t i = 1; i < before.size(); i += 2) before[i] = uint8_t(0x3a + random() % 4);
    }
    after = before;
    const size_t width = layout_of(dtype).width;
    for (size_t i = 0; i < after.size(); i += width) {
      if (double(random() % 1'000'000) < density * 1e6) after[i] ^= 1;
    }
  }
};

// Cuts one dimension into `parts`, as evenly as possible.
Boxes slices(const Shape& shape, size_t dimension, uint64_t parts) {
  Boxes boxes;
  for (uint64_t i = 0; i < parts; ++i) {
    Box box{Shape(shape.size()), shape};
    box.offset[dimension] = shape[dimension] * i / parts;
    box.extent[dimension] = shape[dimension] * (i + 1) / parts - box.offset[dimension];
    if (box.extent[dimension] != 0) boxes.push_back(box);
  }
  return boxes;
}

std::vector<Boxes> shardings(DType dtype, const Shape& shape) {
  std::vector<Boxes> all = {{Box{}}};
  const auto cuts_no_byte = [&](const Boxes& boxes) {
    return std::ranges::all_of(boxes,
                               [&](const Box& box) { return check_box(box, dtype, shape).ok(); });
  };
  for (size_t d = 0; d < shape.size(); ++d) {
    for (const uint64_t parts : {2, 3, 4, 8, 16}) {
      if (parts > shape[d]) continue;
      Boxes boxes = slices(shape, d, parts);
      if (cuts_no_byte(boxes)) all.push_back(std::move(boxes));
    }
  }
  return all;
}

std::vector<EncodedItem> publish(const Tensor& tensor, const Boxes& boxes, const char* codec) {
  std::vector<std::vector<uint8_t>> contents;
  std::vector<EncodeItem> items;
  for (const Box& box : boxes) {
    const size_t size = tensor_size_bytes(tensor.dtype, box_shape(box, tensor.shape)).value();
    for (const auto* state : {&tensor.before, &tensor.after}) {
      contents.emplace_back(size);
      if (box.whole()) {
        contents.back() = *state;
      } else {
        copy_box_out(box, tensor.dtype, tensor.shape, *state, contents.back());
      }
    }
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    EncodeItem item;
    item.change.name = "w";
    item.change.dtype = tensor.dtype;
    item.change.shape = tensor.shape;
    item.change.box = boxes[i];
    item.change.old_bytes = contents[2 * i];
    item.change.new_bytes = contents[2 * i + 1];
    item.comparable = true;
    items.push_back(item);
  }
  std::vector<EncodedItem> out;
  EncodeOptions options;
  options.codec = codec;
  const Status status = encode_items(items, options, nullptr, [&](size_t, EncodedItem outcome) {
    out.push_back(std::move(outcome));
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

// A box in its own buffer, with a row stride larger than the row.
struct Shard {
  std::vector<uint8_t> buffer;
  LocalBox held;
  size_t row_bytes, stride, rows;

  Shard(const Tensor& tensor, const Box& box, size_t gap) {
    const Shape form = box_shape(box, tensor.shape);
    row_bytes = form.back() * dtype_bits(tensor.dtype) / 8;
    stride = row_bytes + gap;
    rows = 1;
    for (size_t d = 0; d + 1 < form.size(); ++d) rows *= form[d];
    buffer.assign(rows * stride, 0xa5);
    held.box = box;
    held.data = buffer.data();
    held.strides.resize(form.size() - 1);
    int64_t bytes = int64_t(stride);
    for (size_t d = held.strides.size(); d-- > 0;) {
      held.strides[d] = bytes;
      bytes *= int64_t(form[d]);
    }
    fill(contents(tensor, tensor.before));
  }
  std::vector<uint8_t> contents(const Tensor& tensor, const std::vector<uint8_t>& state) const {
    if (held.box.whole()) return state;
    std::vector<uint8_t> out(rows * row_bytes);
    copy_box_out(held.box, tensor.dtype, tensor.shape, state, out);
    return out;
  }
  void fill(const std::vector<uint8_t>& bytes) {
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(&buffer[row * stride], &bytes[row * row_bytes], row_bytes);
    }
  }
};

void try_all(const Tensor& tensor, const char* codec) {
  ThreadPool pool(2);
  for (const Boxes& from : shardings(tensor.dtype, tensor.shape)) {
    const std::vector<EncodedItem> entries = publish(tensor, from, codec);
    for (const Boxes& to : shardings(tensor.dtype, tensor.shape)) {
      for (const Box& box : to) {
        Shard shard(tensor, box, to.size() % 2 == 0 ? 16 : 0);
        for (const EncodedItem& item : entries) {
          if (!item.changed) continue;
          const DeltaEntry& entry = item.entry;
          std::vector<uint8_t> old(entry.box_bytes());
          if (entry.box.whole()) {
            old = tensor.before;
          } else {
            copy_box_out(entry.box, tensor.dtype, tensor.shape, tensor.before, old);
          }
          const size_t width = entry.layout().width;
          const ReadOld read_old = [&](size_t begin, MutableBytes out) -> Status {
            std::memcpy(out.data(), &old[begin * width], out.size());
            return {};
          };
          const Status applied =
              apply_to_boxes(entry, item.payload, std::span(&shard.held, 1), read_old, &pool);
          ASSERT_TRUE(applied.ok()) << applied.to_string();
        }
        const std::vector<uint8_t> got = shard.buffer;
        shard.fill(shard.contents(tensor, tensor.after));
        ASSERT_TRUE(got == shard.buffer)
            << codec << ", from " << from.size() << " to " << to.size() << " boxes, "
            << box_to_string(box) << " of " << shape_to_string(tensor.shape);
      }
    }
  }
}

TEST(LocalBoxes, EveryShardingOntoEverySharding) {
  DW_LABEL(long);
  try_all(Tensor(DType::kBF16, {768, 640}, 0.01), "tight");
  try_all(Tensor(DType::kBF16, {3, 300, 896}, 0.01), "tight");
  for (const char* codec : {"gaps", "adaptive", "raw", "auto"}) {
    try_all(Tensor(DType::kBF16, {4, 40, 48}, 0.02), codec);
  }
  try_all(Tensor(DType::kF4, {6, 32, 64}, 0.05), "auto");
  try_all(Tensor(DType::kC64, {40, 24}, 0.05), "auto");
  try_all(Tensor(DType::kF32, {1000}, 0.05), "auto");
}

TEST(LocalBoxes, RejectsBoxesThatCutBytes) {
  const Tensor tensor(DType::kF4, {4, 5}, 0.5);
  const EncodedItem item = publish(tensor, {Box{}}, "gaps")[0];
  std::vector<uint8_t> memory = tensor.before;
  const LocalBox whole{Box{}, memory.data(), {}};
  const Status applied =
      apply_to_boxes(item.entry, item.payload, std::span(&whole, 1), {}, nullptr);
  ASSERT_TRUE(applied.ok()) << applied.to_string();
  EXPECT_TRUE(memory == tensor.after);
  const LocalBox half{Box{{0, 0}, {2, 5}}, memory.data(), {}};
  EXPECT_EQ(regions_of(item.entry, std::span(&half, 1)).status().code(), Code::kInvalidArgument);
}

TEST(LocalBoxes, ContiguousSmallMatricesAreOneRegion) {
  DeltaEntry entry;
  entry.dtype = DType::kBF16;
  entry.shape = {64, 256, 3, 3};
  uint8_t memory = 0;
  const LocalBox whole{Box{}, &memory, {}};
  EXPECT_EQ(regions_of(entry, std::span(&whole, 1)).value(),
            (std::vector<Region>{{0, 0, 64 * 256 * 3, 3, &memory, 6}}));
}

TEST(LocalBoxes, TooManyColumnsAreUnsupported) {
  DeltaEntry entry;
  entry.dtype = DType::kU8;
  entry.shape = {2, uint64_t{1} << 32};
  uint8_t memory = 0;
  const LocalBox part{Box{{1, 0}, {1, 16}}, &memory, {}};
  EXPECT_EQ(regions_of(entry, std::span(&part, 1)).status().code(), Code::kUnsupported);
}

TEST(LocalBoxes, RejectsInvalidBoxes) {
  const Tensor tensor(DType::kBF16, {40, 50}, 0.5);
  const EncodedItem item = publish(tensor, {Box{}}, "gaps")[0];
  std::vector<uint8_t> memory = tensor.before;
  const auto code = [&](LocalBox held) {
    held.data = memory.data();
    return regions_of(item.entry, std::span(&held, 1)).status().code();
  };
  EXPECT_EQ(code({Box{{0, 40}, {40, 11}}, nullptr, {}}), Code::kInvalidArgument);
  EXPECT_EQ(code({Box{{0, 0}, {40, 50}}, nullptr, {1, 2, 3}}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire
