#include "publish/ranks_pieces.h"

#include "chain/names.h"
#include "deltawire/store.h"
#include "format/canonical_json.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// One piece, from the reader's place in a list of them.
Result<PieceRecord> read_piece(CanonicalReader* reader) {
  PieceRecord piece;
  const auto item = [&] {
    return reader->next_item() ? Status()
                               : corruption("\"pieces\": expected eight or nine fields of each");
  };
  reader->open_list();
  DW_RETURN_IF_ERROR(item());
  piece.tensor = reader->text();
  DW_RETURN_IF_ERROR(item());
  const std::string dtype_text = reader->text();
  const std::optional<DType> dtype = parse_dtype(dtype_text);
  DW_RETURN_IF_ERROR(item());
  for (reader->open_list(); reader->next_item();) piece.shape.push_back(reader->number());
  DW_RETURN_IF_ERROR(item());
  const std::string box = reader->text();
  DW_RETURN_IF_ERROR(item());
  const std::string digest = reader->text();
  DW_RETURN_IF_ERROR(item());
  piece.changed = reader->number() != 0;
  DW_RETURN_IF_ERROR(item());
  piece.num_elements = reader->number();
  DW_RETURN_IF_ERROR(item());
  piece.num_changed = reader->number();
  std::optional<std::string> sums;
  if (reader->next_item()) {
    sums = reader->text();
    if (reader->next_item()) return corruption("\"pieces\": expected eight or nine fields of each");
  }
  DW_RETURN_IF_ERROR(reader->status());
  if (!dtype) return unsupported("dtype " + dtype_text);
  piece.dtype = *dtype;
  if (box != "-") {
    DW_ASSIGN_OR_RETURN(piece.box, parse_box(box));
  }
  DW_RETURN_IF_ERROR(tensor_size_bytes(piece.dtype, piece.shape).status());
  DW_RETURN_IF_ERROR(check_box(piece.box, piece.dtype, piece.shape));
  DW_ASSIGN_OR_RETURN(piece.digest, parse_digest(DigestKind::kSum128, digest));
  if (!sums) return piece;
  DW_ASSIGN_OR_RETURN(piece.sums, Sums::parse(*sums));
  DW_ASSIGN_OR_RETURN(const uint64_t size,
                      tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)));
  if (piece.box.whole() || piece.sums->num_bytes() != size) {
    return corruption("\"pieces\": tensor " + quote(piece.tensor) +
                      ": has the sums of another box");
  }
  return piece;
}

// Objects that a rank says are its parts end up in a manifest: they must lie where parts may.
Status check_part_name(const std::string& name, uint64_t version) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  std::string prefix = part_folder(version, "");
  prefix.pop_back();  // its '/'
  if (name.starts_with(prefix)) return {};
  return corruption("\"parts\": " + name + " is not of version " + std::to_string(version));
}

}  // namespace

std::string json_list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? "," : "") + item;
  return text + "]";
}

std::string pieces_json(const std::vector<PieceRecord>& pieces) {
  std::vector<std::string> items;
  for (const PieceRecord& piece : pieces) {
    std::vector<std::string> shape;
    for (const uint64_t extent : piece.shape) shape.push_back(std::to_string(extent));
    std::vector<std::string> fields = {
        canonical_text(piece.tensor),
        canonical_text(dtype_name(piece.dtype)),
        json_list(shape),
        canonical_text(piece.box.whole() ? "-" : box_to_string(piece.box)),
        canonical_text(piece.digest.hex()),
        std::to_string(piece.changed ? 1 : 0),
        std::to_string(piece.num_elements),
        std::to_string(piece.num_changed)};
    if (piece.sums) fields.push_back(canonical_text(piece.sums->to_string()));
    items.push_back(json_list(fields));
  }
  return json_list(items);
}

Result<std::vector<PieceRecord>> parse_pieces(std::string_view json) {
  std::vector<PieceRecord> pieces;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(PieceRecord piece, read_piece(&reader));
    pieces.push_back(std::move(piece));
  }
  DW_RETURN_IF_ERROR(reader.status());
  return pieces;
}

std::string parts_json(const std::vector<PartRef>& parts) {
  std::vector<std::string> items;
  for (const PartRef& part : parts) {
    items.push_back(json_list({canonical_text(part.name), std::to_string(part.size_bytes),
                               canonical_text(part.sha256.hex())}));
  }
  return json_list(items);
}

Result<std::vector<PartRef>> parse_parts(std::string_view json, uint64_t version) {
  const Status bad = corruption("\"parts\": expected name, bytes and sha-256 of each");
  std::vector<PartRef> parts;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    PartRef part;
    reader.open_list();
    if (!reader.next_item()) return bad;
    part.name = reader.text();
    if (!reader.next_item()) return bad;
    part.size_bytes = reader.number();
    if (!reader.next_item()) return bad;
    DW_ASSIGN_OR_RETURN(part.sha256, parse_digest(DigestKind::kSha256, reader.text()));
    if (reader.next_item()) return bad;
    DW_RETURN_IF_ERROR(check_part_name(part.name, version));
    parts.push_back(std::move(part));
  }
  DW_RETURN_IF_ERROR(reader.status());
  return parts;
}

}  // namespace deltawire
