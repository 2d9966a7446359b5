#include "shard/live.h"

#include <cstring>
#include <map>

#include "format/layout.h"
#include "shard/boxes.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace shard {
namespace {

// A tensor's pieces by name.
class LivePieces {
 public:
  static Result<LivePieces> of(std::span<const LiveTensor> pieces) {
    LivePieces all;
    for (const LiveTensor& piece : pieces) {
      const std::string place = "tensor " + quote(piece.name);
      DW_RETURN_IF_ERROR(check_box(piece.box, piece.dtype, piece.shape).at(place));
      DW_ASSIGN_OR_RETURN(const uint64_t size,
                          tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)));
      if (size != piece.bytes.size()) {
        return invalid_argument(place + ": expected " + std::to_string(size) + " bytes, got " +
                                std::to_string(piece.bytes.size()));
      }
      if (piece.memory != Memory::kHost) return unsupported(place + ": not in host memory");
      all.by_name_[piece.name].push_back(piece);
    }
    return all;
  }

  Result<const LiveTensor*> find(const ShardTensor& tensor, const Box& box) const {
    const std::string place = "tensor " + quote(tensor.name);
    const auto found = by_name_.find(tensor.name);
    if (found == by_name_.end()) return invalid_argument(place + ": was not given");
    for (const LiveTensor& piece : found->second) {
      if (piece.dtype != tensor.dtype || piece.shape != tensor.shape) {
        return invalid_argument(place + ": is " + form_of(piece.dtype, piece.shape) +
                                ", the plan has " + form_of(tensor.dtype, tensor.shape));
      }
      if (contains(spelled_out(piece.box, piece.shape), box)) return &piece;
    }
    return invalid_argument(place + ": box " + box_to_string(box) + " was not given");
  }

 private:
  std::map<std::string, std::vector<LiveTensor>, std::less<>> by_name_;
};

Box place_in(const LiveTensor& piece, const Box& box) {
  return relative_to(spelled_out(piece.box, piece.shape), box);
}

// Positions are of the box; the bytes are those of the piece that has it.
void write_changes(const StagedShard& shard, const LiveTensor& piece) {
  const unsigned width = layout_of(piece.dtype).width;
  const BoxRows rows(place_in(piece, shard.box), piece.dtype, box_shape(piece.box, piece.shape));
  uint64_t row = UINT64_MAX, begin = 0;
  for (size_t i = 0; i < shard.positions.size(); ++i) {
    const uint64_t byte = shard.positions[i] * width;
    if (byte / rows.row_bytes() != row) {
      row = byte / rows.row_bytes();
      begin = rows.position(row);
    }
    std::memcpy(piece.bytes.data() + begin + byte % rows.row_bytes(),
                shard.values.data() + i * width, width);
  }
}

}  // namespace

Status write_live(const ShardPlan& plan, const std::vector<StagedShard>& staged,
                  std::span<const LiveTensor> pieces) {
  DW_ASSIGN_OR_RETURN(const LivePieces live, LivePieces::of(pieces));
  std::vector<const LiveTensor*> targets;
  for (const StagedShard& shard : staged) {
    DW_ASSIGN_OR_RETURN(targets.emplace_back(), live.find(plan.tensors[shard.tensor], shard.box));
  }
  for (size_t i = 0; i < staged.size(); ++i) {
    const LiveTensor& piece = *targets[i];
    if (staged[i].whole) {
      copy_box_in(place_in(piece, staged[i].box), piece.dtype, box_shape(piece.box, piece.shape),
                  staged[i].values, piece.bytes);
    } else {
      write_changes(staged[i], piece);
    }
  }
  return {};
}

}  // namespace shard

Result<ReadShard> read_live(std::span<const LiveTensor> pieces) {
  DW_ASSIGN_OR_RETURN(auto made, shard::LivePieces::of(pieces));
  auto live = std::make_shared<const shard::LivePieces>(std::move(made));
  return ReadShard(
      [live](const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) -> Status {
        DW_ASSIGN_OR_RETURN(const LiveTensor* const piece, live->find(tensor, box));
        copy_box_out(shard::place_in(*piece, box), piece->dtype,
                     box_shape(piece->box, piece->shape), piece->bytes, contents);
        return {};
      });
}

}  // namespace deltawire
