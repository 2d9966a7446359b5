#include "dialect/draft_checks.h"

#include "dialect/sparse_changes.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

std::string quoted_tensor(std::string_view name) { return "tensor " + quote(name); }

}  // namespace

Status check_sparse_draft(const ForeignDraft& draft, std::string_view dialect,
                          std::string_view way_out) {
  const auto refuse = [&](const std::string& what) {
    return unsupported(std::string(dialect) + " cannot say that " + what +
                       "; way out: " + std::string(way_out));
  };
  if (!draft.removed.empty()) return refuse(quoted_tensor(draft.removed[0]) + " was removed");
  if (!draft.added.empty()) {
    return refuse(quoted_tensor(draft.added[0]) + " is new, or of another dtype or shape");
  }
  if (draft.base + 1 != draft.version) {
    return refuse("version " + std::to_string(draft.version) + " goes onto version " +
                  std::to_string(draft.base) + ", which is not the one before it");
  }
  for (const TensorSpec& spec : draft.tensors) {
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(spec.shape));
    if (dtype_bits(spec.dtype) % 8 != 0) {
      return refuse(quoted_tensor(spec.name) + " of " + std::string(dtype_name(spec.dtype)) +
                    " changed: its elements are no whole bytes");
    }
    if (elements > kMaxSparseElements) {
      return refuse(quoted_tensor(spec.name) + " changed: it has " + std::to_string(elements) +
                    " elements, positions are int32");
    }
  }
  return {};
}

Status DraftOrder::next(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes) {
  if (next_ == draft_.tensors.size() || draft_.tensors[next_] != spec) {
    return invalid_argument(quoted_tensor(spec.name) + ": the draft has " +
                            (next_ == draft_.tensors.size()
                                 ? std::string("no more")
                                 : quoted_tensor(draft_.tensors[next_].name) + " here"));
  }
  DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(spec.dtype, spec.shape));
  if (new_bytes.size() != size || old_bytes.size() != (draft_.full ? 0 : size)) {
    return invalid_argument(quoted_tensor(spec.name) + ": has " + std::to_string(size) +
                            " bytes, got " + std::to_string(old_bytes.size()) + " old and " +
                            std::to_string(new_bytes.size()) + " new ones");
  }
  ++next_;
  return {};
}

Status DraftOrder::check_all_came() const {
  if (next_ == draft_.tensors.size()) return {};
  return invalid_argument(quoted_tensor(draft_.tensors[next_].name) + " of the draft did not come");
}

}  // namespace deltawire
