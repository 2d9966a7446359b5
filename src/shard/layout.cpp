#include "shard/layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "shard/boxes.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Far more than there is, and little enough to count bits and to add up ranks.
constexpr uint64_t kMaxShardTensorBytes = uint64_t{1} << 48;

std::string place_of(const ShardTensor& tensor) { return "tensor " + quote(tensor.name); }

bool before(const ShardPiece& a, const ShardPiece& b) {
  if (a.tensor != b.tensor) return a.tensor < b.tensor;
  return a.box.offset != b.box.offset ? a.box.offset < b.box.offset : a.box.extent < b.box.extent;
}

Status check_form(const ShardTensor& tensor) {
  if (tensor.name.empty() || !is_utf8(tensor.name)) {
    return invalid_argument(place_of(tensor) + ": a name is some UTF-8");
  }
  if (tensor.shape.size() > kMaxDimensions) {
    return invalid_argument(place_of(tensor) + ": has " + std::to_string(tensor.shape.size()) +
                            " dimensions, at most " + std::to_string(kMaxDimensions) +
                            " are supported");
  }
  const Result<uint64_t> bytes = tensor_size_bytes(tensor.dtype, tensor.shape);
  if (bytes.ok() && *bytes > kMaxShardTensorBytes) {
    return invalid_argument(place_of(tensor) + ": " + shape_to_string(tensor.shape) +
                            " is larger than any tensor");
  }
  return Status(bytes.status()).at(place_of(tensor));
}

// New numbers of the tensors, by old ones.
Result<std::vector<uint32_t>> sort_tensors(ShardLayout* layout) {
  std::vector<ShardTensor>& tensors = layout->tensors;
  if (tensors.size() > kMaxShardTensors) {
    return invalid_argument(std::to_string(tensors.size()) + " tensors are too many");
  }
  std::vector<uint32_t> order(tensors.size()), number(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  std::vector<ShardTensor> sorted;
  for (const uint32_t at : order) {
    DW_RETURN_IF_ERROR(check_form(tensors[at]));
    if (!sorted.empty() && sorted.back().name == tensors[at].name) {
      return invalid_argument(place_of(tensors[at]) + ": comes twice");
    }
    number[at] = uint32_t(sorted.size());
    sorted.push_back(std::move(tensors[at]));
  }
  tensors = std::move(sorted);
  return number;
}

// Of one tensor, sorted.
Status refuse_overlaps(const ShardTensor& tensor, std::span<const ShardPiece> pieces) {
  if (pieces.size() > kMaxPiecesOfTensor) {
    return invalid_argument(place_of(tensor) + ": " + std::to_string(pieces.size()) +
                            " boxes on one rank, at most " + std::to_string(kMaxPiecesOfTensor) +
                            " are supported");
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!overlap(pieces[i].box, pieces[j].box)) continue;
      const auto words = [](const Box& box) { return box.whole() ? "-" : box_to_string(box); };
      return invalid_argument(place_of(tensor) + ": boxes " + words(pieces[j].box) + " and " +
                              words(pieces[i].box) + " of one rank overlap");
    }
  }
  return {};
}

Status settle_rank(const std::vector<ShardTensor>& tensors, std::span<const uint32_t> number,
                   std::vector<ShardPiece>* pieces) {
  std::vector<ShardPiece> sound;
  sound.reserve(pieces->size());
  for (ShardPiece& piece : *pieces) {
    if (piece.tensor >= number.size()) {
      return invalid_argument("there is no tensor " + std::to_string(piece.tensor));
    }
    piece.tensor = number[piece.tensor];
    const ShardTensor& tensor = tensors[piece.tensor];
    DW_RETURN_IF_ERROR(check_box(piece.box, tensor.dtype, tensor.shape).at(place_of(tensor)));
    if (num_elements_of(spelled_out(piece.box, tensor.shape)) == 0) continue;
    piece.box = normalise_box(std::move(piece.box), tensor.shape);
    sound.push_back(std::move(piece));
  }
  std::sort(sound.begin(), sound.end(), before);
  for (size_t begin = 0; begin < sound.size();) {
    const std::span<const ShardPiece> own = pieces_of(sound, sound[begin].tensor);
    DW_RETURN_IF_ERROR(refuse_overlaps(tensors[sound[begin].tensor], own));
    begin += own.size();
  }
  *pieces = std::move(sound);
  return {};
}

}  // namespace

Status settle_layout(ShardLayout* layout) {
  if (layout->ranks.size() > kMaxShardRanks) {
    return invalid_argument(std::to_string(layout->ranks.size()) + " ranks are too many");
  }
  DW_ASSIGN_OR_RETURN(const std::vector<uint32_t> number, sort_tensors(layout));
  for (size_t rank = 0; rank < layout->ranks.size(); ++rank) {
    DW_RETURN_IF_ERROR(settle_rank(layout->tensors, number, &layout->ranks[rank])
                           .at("rank " + std::to_string(rank)));
  }
  return {};
}

std::span<const ShardPiece> pieces_of(const std::vector<ShardPiece>& pieces, uint32_t tensor) {
  const auto [begin, end] =
      std::equal_range(pieces.begin(), pieces.end(), ShardPiece{tensor, {}},
                       [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  return {begin, end};
}

const ShardPiece* find_holder(const std::vector<ShardPiece>& pieces, uint32_t tensor,
                              const Box& box) {
  for (const ShardPiece& piece : pieces_of(pieces, tensor)) {
    if (piece.box.whole() || (!box.whole() && contains(piece.box, box))) return &piece;
  }
  return nullptr;
}

Result<ShardLayout> ShardLayout::of_rank(std::span<const LiveTensor> pieces) {
  ShardLayout layout;
  layout.ranks.resize(1);
  std::map<std::string_view, uint32_t> numbers;
  for (const LiveTensor& piece : pieces) {
    const auto [at, is_new] = numbers.try_emplace(piece.name, uint32_t(layout.tensors.size()));
    if (is_new) layout.tensors.push_back({piece.name, piece.dtype, piece.shape});
    const ShardTensor& tensor = layout.tensors[at->second];
    if (tensor.dtype != piece.dtype || tensor.shape != piece.shape) {
      return invalid_argument(place_of(tensor) + ": is " + form_of(tensor.dtype, tensor.shape) +
                              " and " + form_of(piece.dtype, piece.shape));
    }
    layout.ranks[0].push_back({at->second, piece.box});
  }
  DW_RETURN_IF_ERROR(settle_layout(&layout));
  return layout;
}

Result<ShardLayout> ShardLayout::join(std::span<const ShardLayout> parts) {
  ShardLayout all;
  std::map<std::string_view, uint32_t> numbers;
  for (const ShardLayout& part : parts) {
    std::vector<uint32_t> number;
    for (const ShardTensor& tensor : part.tensors) {
      const auto [at, is_new] = numbers.try_emplace(tensor.name, uint32_t(all.tensors.size()));
      if (is_new) all.tensors.push_back(tensor);
      const ShardTensor& known = all.tensors[at->second];
      if (known != tensor) {
        return invalid_argument(place_of(tensor) + ": is " + form_of(known.dtype, known.shape) +
                                " on one rank and " + form_of(tensor.dtype, tensor.shape) +
                                " on another");
      }
      number.push_back(at->second);
    }
    for (const std::vector<ShardPiece>& pieces : part.ranks) {
      all.ranks.emplace_back();
      for (const ShardPiece& piece : pieces) {
        if (piece.tensor >= number.size()) return invalid_argument("a piece has no tensor");
        all.ranks.back().push_back({number[piece.tensor], piece.box});
      }
    }
  }
  DW_RETURN_IF_ERROR(settle_layout(&all));
  return all;
}

uint64_t ShardLayout::rank_bytes(unsigned rank) const {
  uint64_t bytes = 0;
  for (const ShardPiece& piece : ranks[rank]) {
    const ShardTensor& tensor = tensors[piece.tensor];
    bytes += bytes_of(spelled_out(piece.box, tensor.shape), tensor.dtype);
  }
  return bytes;
}

}  // namespace deltawire
