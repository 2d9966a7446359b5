#include "publish/new_tensor.h"

#include "codec/choose.h"
#include "format/layout.h"
#include "publish/coded_array.h"

namespace deltawire {

Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry) {
  const bool raw = codec == "raw";
  const Layout layout = layout_of(entry->dtype);
  if (!stream) {
    std::vector<uint8_t> bytes(item.size_bytes());
    DW_RETURN_IF_ERROR(item.new_contents->read(0, bytes));
    DW_ASSIGN_OR_RETURN(Choice whole, encode_whole_array(layout, bytes, raw, pool));
    entry->codec = whole.codec;
    return Payload::own(std::move(whole.encoded.payload));
  }
  const Bytes bytes = item.change.new_bytes;
  if (raw) return Payload::of(item.new_contents, bytes);
  DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> coded,
                      code_array(layout, item.new_contents, pool));
  if (coded == nullptr) return Payload::of(item.new_contents, bytes);
  entry->codec = CodecId::kExponents;
  return Payload::of(coded, bytes.first(size_t(coded->size())));
}

}  // namespace deltawire
