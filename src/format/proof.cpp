#include "format/proof.h"

#include <algorithm>

#include "base/guard.h"
#include "base/json.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "base/waves.h"
#include "format/manifest.h"
#include "format/tensor_digest.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

std::string place_of(const std::string& tensor) { return "tensor " + quote(tensor); }

// The size of a piece's box, of which `given` bytes are there.
template <class Piece>
Result<uint64_t> piece_bytes(const Piece& piece, uint64_t given) {
  if (Status status = check_box(piece.box, piece.dtype, piece.shape); !status.ok()) {
    return std::move(status).at(place_of(piece.name));
  }
  DW_ASSIGN_OR_RETURN(const uint64_t bytes,
                      tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)));
  if (bytes == given) return bytes;
  return invalid_argument(place_of(piece.name) + ": " + std::to_string(given) +
                          " bytes were given, its box has " + std::to_string(bytes));
}

// At most this many are named.
constexpr size_t kNamed = 3;

std::string list_of(const std::vector<std::string>& wrong) {
  std::string text;
  for (size_t i = 0; i < std::min(wrong.size(), kNamed); ++i) {
    text += (i == 0 ? "" : "; ") + wrong[i];
  }
  if (wrong.size() > kNamed) text += "; and " + std::to_string(wrong.size() - kNamed) + " more";
  return text;
}

}  // namespace

Status Proof::add(std::span<const HeldPiece> pieces, unsigned threads) {
  if (pieces.empty()) return check_same();  // threads take longer to start than a GPU to add up
  std::vector<uint64_t> sizes;
  for (const HeldPiece& piece : pieces) {
    DW_ASSIGN_OR_RETURN(const uint64_t bytes, piece_bytes(piece, piece.bytes.size()));
    sizes.push_back(bytes);
  }
  ThreadPool pool(threads);
  std::vector<Sums> sums(pieces.size());
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kShared, &pool, {})
                         .run(
                             [&](size_t i, ThreadPool* inner) -> Status {
                               const HeldPiece& piece = pieces[i];
                               const BoxRows rows(piece.box, piece.dtype, piece.shape);
                               DW_ASSIGN_OR_RETURN(sums[i], sums_of_box(rows, piece.bytes, inner));
                               return {};
                             },
                             [&](size_t i) {
                               const HeldPiece& piece = pieces[i];
                               return add_piece(piece, {normalise_box(piece.box, piece.shape),
                                                        std::move(sums[i])});
                             }));
  return check_same();
}

Status Proof::add_summed(std::vector<SummedPiece> pieces) {
  for (SummedPiece& piece : pieces) {
    DW_RETURN_IF_ERROR(piece_bytes(piece, piece.sums.num_bytes()).status());
    Piece own{normalise_box(std::move(piece.box), piece.shape), std::move(piece.sums)};
    DW_RETURN_IF_ERROR(add_piece(std::move(piece), std::move(own)));
  }
  return check_same();
}

Status Proof::add(const Proof& other) {
  for (const auto& [name, tensor] : other.tensors_) {
    for (const Piece& piece : tensor.pieces) {
      DW_RETURN_IF_ERROR(add_piece(tensor, piece));
    }
  }
  differing_.insert(other.differing_.begin(), other.differing_.end());
  return check_same();
}

std::vector<std::string> Proof::differing() const {
  std::vector<std::string> names;
  for (const auto& [name, box] : differing_) names.push_back(name);
  return names;
}

Status Proof::check_same() const {
  if (differing_.empty()) return {};
  std::vector<std::string> places;
  for (const auto& [name, box] : differing_) places.push_back(place_of(name) + box);
  return base_mismatch("copies of the same weights differ: " + list_of(places));
}

Status Proof::add_piece(TensorSpec spec, Piece piece) {
  Tensor& tensor = tensors_.try_emplace(tensors_.end(), spec.name)->second;  // names often ascend
  if (tensor.pieces.empty()) {
    tensor = {std::move(spec), {}};
  } else if (!same_form(tensor, spec)) {
    return invalid_argument(place_of(spec.name) + ": is " + form_of(tensor) + " here and " +
                            form_of(spec) + " there");
  }
  for (const Piece& held : tensor.pieces) {
    if (held.box != piece.box) continue;
    if (held.sums != piece.sums) {
      differing_.try_emplace(tensor.name,
                             piece.box.whole() ? "" : ", box " + box_to_string(piece.box));
    }
    return {};
  }
  tensor.pieces.push_back(std::move(piece));
  return {};
}

Result<Digest> Proof::digest_of_tensor(const std::string& name, const Tensor& tensor) {
  std::vector<Sums> sums;
  const std::vector<Piece>& pieces = tensor.pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].sums.num_bytes() == 0) continue;  // a rank that holds nothing of it
    for (size_t j = 0; j < i; ++j) {
      if (pieces[j].sums.num_bytes() == 0 || !overlap(pieces[i].box, pieces[j].box)) continue;
      const auto box = [](const Box& one) { return one.whole() ? "-" : box_to_string(one); };
      return invalid_argument(place_of(name) + ": boxes " + box(pieces[j].box) + " and " +
                              box(pieces[i].box) + " overlap");
    }
    sums.push_back(pieces[i].sums);
  }
  const Sums all = added_up(std::move(sums));
  DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(tensor.dtype, tensor.shape));
  if (all.num_bytes() != size) {
    return invalid_argument(place_of(name) + ": its boxes have " + std::to_string(all.num_bytes()) +
                            " of its " + std::to_string(size) + " bytes");
  }
  Result<Digest> digest = all.finish(size);
  if (!digest.ok()) return std::move(digest).status().at(place_of(name));
  return digest;
}

Result<Digests> Proof::digests() const {
  Digests digests;
  for (const auto& [name, tensor] : tensors_) {
    if (differing_.contains(name)) continue;
    DW_ASSIGN_OR_RETURN(digests[name], digest_of_tensor(name, tensor));
  }
  return digests;
}

Result<std::vector<std::string>> Proof::differing_from(const Digests& digests) const {
  std::vector<std::string> wrong = differing();
  for (const auto& [name, tensor] : tensors_) {
    if (differing_.contains(name)) continue;
    DW_ASSIGN_OR_RETURN(const Digest digest, digest_of_tensor(name, tensor));
    const auto expected = digests.find(name);
    if (expected == digests.end() || expected->second != digest) wrong.push_back(name);
  }
  return wrong;
}

Status Proof::check(const Schema& schema, const Manifest& manifest) const {
  const std::string version = "version " + std::to_string(manifest.version);
  DW_RETURN_IF_ERROR(check_same());
  DW_ASSIGN_OR_RETURN(const auto held, digests());
  std::vector<std::string> wrong;
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (boxes_hashed(manifest, tensor.name) != nullptr) {
      return unsupported(version + ", " + place_of(tensor.name) +
                         ": was published box by box, without the sums of the boxes");
    }
    const auto own = tensors_.find(tensor.name);
    if (own == tensors_.end()) {
      wrong.push_back(place_of(tensor.name) + " is missing");
    } else if (!same_form(own->second, tensor)) {
      wrong.push_back(place_of(tensor.name) + " has another dtype or shape");
    } else if (held.at(tensor.name) != manifest.digests[i]) {
      wrong.push_back(place_of(tensor.name) + ": expected " + manifest.digests[i].hex() + ", got " +
                      held.at(tensor.name).hex());
    }
  }
  if (wrong.empty() && tensors_.size() > schema.tensors.size()) {
    wrong.push_back("there are tensors that it does not have");
  }
  if (wrong.empty()) return {};
  return base_mismatch("the weights held are not those of " + version + ": " + list_of(wrong));
}

std::string Proof::to_text() const {
  Json tensors = Json::array();
  for (const auto& [name, tensor] : tensors_) {
    Json pieces = Json::array();
    for (const Piece& piece : tensor.pieces) {
      pieces.push_back(
          {piece.box.whole() ? "-" : box_to_string(piece.box), piece.sums.to_string()});
    }
    tensors.push_back({name, dtype_name(tensor.dtype), tensor.shape, std::move(pieces)});
  }
  return json_text(Json{{"format", "proof/1"}, {"tensors", std::move(tensors)}},
                   {.replace_bytes = true});
}

Result<Proof> Proof::parse(std::string_view text) {
  const auto bad = [] { return corruption("proof: not as Proof::to_text() writes it"); };
  const Json json = parse_json(text);
  if (!json.is_object() || json.value("format", Json()) != "proof/1") return bad();
  const auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_array()) return bad();
  std::vector<SummedPiece> pieces;
  for (const Json& item : *tensors) {
    const bool sound = item.is_array() && item.size() == 4 && item[0].is_string() &&
                       item[1].is_string() && item[2].is_array() && item[3].is_array() &&
                       !item[3].empty() &&
                       std::all_of(item[2].begin(), item[2].end(),
                                   [](const Json& d) { return d.is_number_unsigned(); });
    if (!sound) return bad();
    const auto dtype = parse_dtype(item[1].get<std::string>());
    const Shape shape = item[2].get<Shape>();
    if (!dtype || !tensor_size_bytes(*dtype, shape).ok()) return bad();
    for (const Json& own : item[3]) {
      if (!own.is_array() || own.size() != 2 || !own[0].is_string() || !own[1].is_string()) {
        return bad();
      }
      const auto box_text = own[0].get<std::string>();
      const Result<Box> box = box_text == "-" ? Box{} : parse_box(box_text);
      Result<Sums> sums = Sums::parse(own[1].get<std::string>());
      if (!box.ok() || !sums.ok()) return bad();
      pieces.push_back({item[0].get<std::string>(), *dtype, shape, *box, std::move(*sums)});
    }
  }
  Proof proof;
  if (!proof.add_summed(std::move(pieces)).ok()) return bad();
  return proof;
}

}  // namespace deltawire
