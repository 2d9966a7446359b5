#include "replica/hop_files.h"

#include "base/folder.h"
#include "format/checkpoint_files.h"
#include "replica/limits.h"
#include "replica/local_layout.h"
#include "replica/unpack_stream.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// The plain file is made in the item's place; `aside` holds what comes too early.
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
    DW_RETURN_IF_ERROR(remove_tree(folder));
    DW_RETURN_IF_ERROR(make_folder(folder));
    if (!hop.base) {
      DW_RETURN_IF_ERROR(remove_tree(packed()));
      DW_RETURN_IF_ERROR(make_folder(packed()));
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

Result<std::vector<Delta>> HopFiles::open_deltas() const {
  std::vector<Delta> deltas;
  for (size_t h = 0; h < hops_.size(); ++h) {
    if (!hops_[h].base) continue;
    std::vector<PartFile> parts;
    for (size_t p = 0; p < hops_[h].parts.size(); ++p) parts.push_back(part(h, p));
    DW_ASSIGN_OR_RETURN(Delta delta, open_delta_parts(parts));
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

}  // namespace deltawire
