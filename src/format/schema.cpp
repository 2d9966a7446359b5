#include "format/schema.h"

#include "format/canonical_json.h"
#include "format/record.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kSchemaFormat = "schema/1";

// [name, dtype, shape]
Result<Schema::Tensor> read_tensor(CanonicalReader* reader) {
  Schema::Tensor tensor;
  const auto bad = [] { return bad_field("tensors", "name, dtype and shape of each"); };
  reader->open_list();
  if (!reader->next_item()) return bad();
  tensor.name = reader->text();
  if (!reader->next_item()) return bad();
  const std::string_view dtype = reader->word();
  if (!reader->next_item()) return bad();
  for (reader->open_list(); reader->next_item();) {
    if (tensor.shape.size() == kMaxRank) return bad_field("tensors", "at most 64 dimensions");
    tensor.shape.push_back(reader->number());
  }
  if (!reader->ok() || reader->next_item() || !reader->ok()) return bad();
  const std::optional<DType> known = parse_dtype(dtype);
  if (!known) return unsupported("dtype " + quote(dtype));
  tensor.dtype = *known;
  if (Result<uint64_t> bytes = tensor_size_bytes(tensor.dtype, tensor.shape); !bytes.ok()) {
    return corruption("tensor " + quote(tensor.name) + ": " + bytes.status().message());
  }
  return tensor;
}

}  // namespace

std::string serialise_schema(const Schema& schema) {
  std::string tensors;
  for (const Schema::Tensor& tensor : schema.tensors) {
    tensors.append(tensors.empty() ? "[" : ",[").append(canonical_text(tensor.name));
    tensors.append(",\"").append(dtype_name(tensor.dtype)).append("\",[");
    tensors.append(join_numbers(tensor.shape)).append("]]");
  }
  RecordWriter record(kSchemaFormat);
  record.json("tensors", "[" + tensors + "]");
  return record.plain();
}

// Its name is its digest, so it carries no checksum of its own.
Result<Schema> parse_schema(std::string_view text) {
  DW_ASSIGN_OR_RETURN(const RecordReader record, RecordReader::open(text, kSchemaFormat));
  Schema schema;
  CanonicalReader reader(record.json("tensors"));
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(Schema::Tensor tensor, read_tensor(&reader));
    if (!schema.tensors.empty() && schema.tensors.back().name >= tensor.name) {
      return bad_field("tensors", "names in ascending order");
    }
    schema.tensors.push_back(std::move(tensor));
  }
  if (!reader.ok()) return bad_field("tensors", "a list");
  return schema;
}

}  // namespace deltawire
