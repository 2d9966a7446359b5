#include "replica/hop_files.h"

#include "base/folder.h"
#include "format/checkpoint_files.h"
#include "format/part_check.h"
#include "replica/limits.h"
#include "replica/local_state.h"
#include "replica/unpack_stream.h"
#include "tensor/form.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// Unpacks the item into its plain file as it arrives. `aside` holds pieces that arrive out of
// order.
void unpack_on_the_way(FetchItem* item, fs::path aside) {
  item->follow = [plain = item->to, bytes = item->part.size_bytes] {
    return std::make_unique<UnpackStream>(plain, bytes);
  };
  item->to = std::move(aside);
}

}  // namespace

Result<std::vector<FetchItem>> HopFiles::make() const {
  std::vector<FetchItem> items;
  for (size_t h = 0; h < hops_.size(); ++h) {
    const Hop& hop = hops_[h];
    const fs::path folder = hop.base ? hop_folder(h) : anchor();
    for (const fs::path& empty : {folder, hop.base ? folder : packed()}) {
      DW_RETURN_IF_ERROR(remove_tree(empty));
      DW_RETURN_IF_ERROR(make_folder(empty));
    }
    for (size_t p = 0; p < hop.parts.size(); ++p) {
      FetchItem item{hop.parts[p], part(h, p).path};
      if (!hop.base) {
        DW_ASSIGN_OR_RETURN(const std::string name, checkpoint_file_of(hop.parts[p]));
        if (!is_weights_file(name)) continue;
        item.to = folder / plain_file_name(name);
        if (is_packed_file(name)) unpack_on_the_way(&item, packed() / name);
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

PartFile HopFiles::part(size_t hop, size_t part) const {
  return {hop_folder(hop) / ("part-" + std::to_string(part)),
          url_ + "/" + hops_[hop].parts[part].name};
}

Result<std::vector<Delta>> HopFiles::open_deltas(ThreadPool* pool) const {
  std::vector<Delta> deltas;
  for (size_t h = 0; h < hops_.size(); ++h) {
    if (!hops_[h].base) continue;
    std::vector<PartFile> parts;
    for (size_t p = 0; p < hops_[h].parts.size(); ++p) parts.push_back(part(h, p));
    DW_ASSIGN_OR_RETURN(Delta delta, open_delta_parts(parts, pool));
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

Result<EagerParts::Ready> EagerParts::add(const PartFile& part) {
  Ready ready;
  DW_ASSIGN_OR_RETURN(ready.delta, open_delta_parts({part}));
  const Schema& schema = target_.schema;
  for (const Delta::Entry& item : ready.delta.entries) {
    const DeltaEntry& entry = item.entry;
    const CheckpointTensor* from = find_tensor(held_.tensors, entry.tensor);
    const TensorSpec* to = find_tensor(schema.tensors, entry.tensor);
    const bool alone = entry.box.whole() && entry.old_digest && from != nullptr && to != nullptr &&
                       same_form(entry, from->view) && same_form(entry, *to);
    if (!alone) continue;
    const size_t index = size_t(to - schema.tensors.data());
    // If the tensor has a second entry, that is detected when all parts are opened together.
    if (done_.insert(index).second) ready.steps.push_back({index, from, {&item}});
  }
  return ready;
}

void EagerParts::erase_done(std::vector<TensorSteps>* steps) const {
  std::erase_if(*steps, [&](const TensorSteps& one) { return done_.contains(one.index); });
}

}  // namespace deltawire
