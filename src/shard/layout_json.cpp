// {"format": "shard-layout/1", "tensors": [["w", "BF16", [4, 8]], ...], "ranks": [[[0, "0,0+2,8"],
// ...], ...]}: a piece is the number of its tensor and its box; "-" is all of it.
#include "base/json.h"
#include "shard/layout.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "shard-layout/1";

Status not_as_written(const std::string& what) { return corruption("shard layout: " + what); }

bool is_number(const Json& json, uint64_t most) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= most;
}

Result<ShardTensor> parse_tensor(const Json& json) {
  if (!json.is_array() || json.size() != 3 || !json[0].is_string() || !json[1].is_string() ||
      !json[2].is_array()) {
    return not_as_written("a tensor is [name, dtype, [dimensions]]");
  }
  ShardTensor tensor;
  tensor.name = json[0].get<std::string>();
  const auto dtype = parse_dtype(json[1].get<std::string>());
  if (!dtype) {
    return not_as_written("tensor " + quote(tensor.name) + ": there is no dtype " +
                          quote(json[1].get<std::string>()));
  }
  tensor.dtype = *dtype;
  for (const Json& dimension : json[2]) {
    if (!is_number(dimension, INT64_MAX) || tensor.shape.size() == kMaxDimensions) {
      return not_as_written("tensor " + quote(tensor.name) + ": a shape is a few whole numbers");
    }
    tensor.shape.push_back(dimension.get<uint64_t>());
  }
  return tensor;
}

Result<ShardPiece> parse_piece(const Json& json, size_t num_tensors) {
  if (!json.is_array() || json.size() != 2 || !is_number(json[0], kMaxShardTensors) ||
      !json[1].is_string() || json[0].get<uint64_t>() >= num_tensors) {
    return not_as_written("a piece is [number of a tensor, box]");
  }
  ShardPiece piece{json[0].get<uint32_t>(), {}};
  const std::string& box = json[1].get_ref<const std::string&>();
  if (box == "-") return piece;
  DW_ASSIGN_OR_RETURN(piece.box, parse_box(box));
  return piece;
}

}  // namespace

std::string ShardLayout::to_text() const {
  Json forms = Json::array(), all = Json::array();
  for (const ShardTensor& tensor : tensors) {
    forms.push_back({tensor.name, dtype_name(tensor.dtype), tensor.shape});
  }
  for (const std::vector<ShardPiece>& pieces : ranks) {
    Json own = Json::array();
    for (const ShardPiece& piece : pieces) {
      own.push_back({piece.tensor, piece.box.whole() ? "-" : box_to_string(piece.box)});
    }
    all.push_back(std::move(own));
  }
  return json_text(Json{{"format", kFormat}, {"tensors", std::move(forms)}, {"ranks", all}});
}

Result<ShardLayout> ShardLayout::parse(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return not_as_written("no JSON object");
  if (json.value("format", Json()) != kFormat) {
    return not_as_written(std::string("\"format\" is not \"") + kFormat + "\"");
  }
  const auto tensors = json.find("tensors"), ranks = json.find("ranks");
  if (tensors == json.end() || !tensors->is_array() || ranks == json.end() || !ranks->is_array()) {
    return not_as_written("\"tensors\" and \"ranks\" are to be lists");
  }
  if (ranks->size() > kMaxShardRanks || tensors->size() > kMaxShardTensors) {
    return not_as_written("too many ranks or tensors");
  }
  ShardLayout layout;
  for (const Json& tensor : *tensors) {
    DW_ASSIGN_OR_RETURN(layout.tensors.emplace_back(), parse_tensor(tensor));
  }
  for (const Json& rank : *ranks) {
    if (!rank.is_array()) return not_as_written("a rank is a list of pieces");
    layout.ranks.emplace_back();
    for (const Json& piece : rank) {
      DW_ASSIGN_OR_RETURN(layout.ranks.back().emplace_back(),
                          parse_piece(piece, layout.tensors.size()));
    }
  }
  const Status sound = settle_layout(&layout);
  if (!sound.ok()) return not_as_written(sound.message());
  return layout;
}

}  // namespace deltawire
