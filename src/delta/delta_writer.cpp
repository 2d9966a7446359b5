#include "delta/delta_writer.h"

namespace deltawire {

struct DeltaWriter::OpenPart {
  AtomicFile file;
  std::vector<EntryRecord> records;
};

Result<DeltaWriter> DeltaWriter::create(const std::filesystem::path& out, uint64_t part_bytes,
                                        Poll poll) {
  DeltaWriter writer;
  writer.out_ = out;
  writer.part_bytes_ = part_bytes;
  writer.poll_ = std::move(poll);
  const bool single = is_single_part(out);
  DW_ASSIGN_OR_RETURN(writer.target_,
                      prepare_output(out, single ? OutputForm::kFile : OutputForm::kFolder));
  if (!single) {
    DW_ASSIGN_OR_RETURN(*writer.folder_, create_temporary_folder(writer.target_));
  }
  return writer;
}

DeltaWriter::DeltaWriter(DeltaWriter&& other) noexcept = default;
DeltaWriter::~DeltaWriter() = default;

void DeltaWriter::RemoveFolder::operator()(std::filesystem::path* folder) const noexcept {
  if (!folder->empty()) remove_temporary_folder(*folder);
  delete folder;
}

Status DeltaWriter::add(DeltaEntry entry, std::vector<uint8_t> payload) {
  if (!folder_->empty() && !records_.empty() && pending_bytes_ + payload.size() > part_bytes_) {
    DW_RETURN_IF_ERROR(close_part({}));
  }
  pending_bytes_ += payload.size();
  records_.push_back({std::move(entry), payload.size(), digest_of(DigestKind::kXxh3_128, payload)});
  payloads_.push_back(std::move(payload));
  return {};
}

// Writes the payloads. The header is written now to reserve its space, and again when the digests
// of the whole delta are known.
Status DeltaWriter::close_part(const DeltaInfo& info) {
  const std::string name = part_name(open_parts_.size());
  DW_ASSIGN_OR_RETURN(AtomicFile file, folder_->empty()
                                           ? AtomicFile::create(target_, out_)
                                           : AtomicFile::create(*folder_ / name, out_ / name));
  DeltaInfo sized = info;
  sized.base.size = 16;
  // The index of a folder names the target. A single part may leave it open.
  if (!folder_->empty()) sized.target.size = 16;
  DW_ASSIGN_OR_RETURN(const std::string header, serialise_part_header(sized, records_));
  DW_RETURN_IF_ERROR(file.write({reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  for (const auto& payload : payloads_) DW_RETURN_IF_ERROR(file.write(payload, poll_));
  bytes_written_ += header.size() + pending_bytes_;
  open_parts_.push_back({std::move(file), std::move(records_)});
  records_.clear();
  payloads_.clear();
  pending_bytes_ = 0;
  ++num_parts_;
  return {};
}

Status DeltaWriter::finish(const DeltaInfo& info) {
  if (!records_.empty() || open_parts_.empty()) DW_RETURN_IF_ERROR(close_part(info));
  DeltaIndex index{info.base, info.target, {}};
  for (size_t i = 0; i < open_parts_.size(); ++i) {
    OpenPart& part = open_parts_[i];
    DeltaInfo own = info;
    // Names of removed tensors make the header longer, so they go to the last part, whose header
    // was sized with them.
    if (i + 1 < open_parts_.size()) own.removed.clear();
    DW_ASSIGN_OR_RETURN(const std::string header, serialise_part_header(own, part.records));
    DW_RETURN_IF_ERROR(
        part.file.write_at(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
    DW_RETURN_IF_ERROR(part.file.commit(poll_));
    if (folder_->empty()) continue;
    DW_ASSIGN_OR_RETURN(const auto written, MappedFile::open(*folder_ / part_name(i)));
    index.parts.push_back(
        {part_name(i), written->bytes().size(), digest_of(DigestKind::kSha256, written->bytes())});
  }
  if (folder_->empty()) return {};
  const std::string json = serialise_delta_index(index);
  bytes_written_ += json.size();
  DW_RETURN_IF_ERROR(write_text_file(*folder_ / kDeltaIndexName, json, out_ / kDeltaIndexName));
  if (poll_) DW_RETURN_IF_ERROR(poll_());
  DW_RETURN_IF_ERROR(publish_temporary_folder(*folder_, target_));
  folder_->clear();
  return {};
}

}  // namespace deltawire
