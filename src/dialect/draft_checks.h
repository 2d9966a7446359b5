// What writers of sparse dialects refuse before they write anything, and the order in which tensors
// must come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"

namespace deltawire {

// Unsupported names the tensor that was removed, added or made another, that has no whole bytes per
// element or too many elements, or the base that is not the version before. `dialect` is whose
// files cannot say it; `way_out` ends the message.
Status check_sparse_draft(const ForeignDraft& draft, std::string_view dialect,
                          std::string_view way_out);

// Hands out a draft's tensors one by one. InvalidArgument when another one comes, or bytes of
// another size.
class DraftOrder {
 public:
  explicit DraftOrder(const ForeignDraft& draft) : draft_(draft) {}
  Status next(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes);
  Status check_all_came() const;

 private:
  ForeignDraft draft_;
  size_t next_ = 0;
};

}  // namespace deltawire
