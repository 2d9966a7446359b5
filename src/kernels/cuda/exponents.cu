#include "kernels/cuda/exponents.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/exponents_decode.cuh"
#include "kernels/cuda/exponents_encode.cuh"

namespace deltawire::cuda {
namespace {

// Calls body.operator()<kForm>().
template <class Body>
Status with_form(KeyForm form, const Body& body) {
  switch (form) {
    case KeyForm::k8of16:
      return body.template operator()<KeyForm::k8of16>();
    case KeyForm::k5of16:
      return body.template operator()<KeyForm::k5of16>();
    case KeyForm::k8of32:
      return body.template operator()<KeyForm::k8of32>();
  }
  return internal_error("no kernel decodes these keys");
}

// Wider floats become bf16, which has one form.
template <class Body>
Status with_form_and_kind(KeyForm form, NewKind kind, const Body& body) {
  if (kind == NewKind::kSame) {
    return with_form(
        form, [&]<KeyForm kForm>() { return body.template operator()<kForm, NewKind::kSame>(); });
  }
  if (form != KeyForm::k8of16) return internal_error("wider floats are read as bf16 alone");
  if (kind == NewKind::kF32AsBf16) {
    return body.template operator()<KeyForm::k8of16, NewKind::kF32AsBf16>();
  }
  return body.template operator()<KeyForm::k8of16, NewKind::kF16AsBf16>();
}

}  // namespace

Status plan_exponents(KeyForm form, NewKind kind, const ExponentsBlock* blocks, uint32_t num_blocks,
                      ExponentsPlan* plans, Stream stream) {
  if (num_blocks == 0) return {};
  return with_form_and_kind(form, kind, [&]<KeyForm kForm, NewKind kKind>() {
    plan_exponents_blocks<kForm, kKind>
        <<<num_blocks, kExponentsThreads, 0, stream>>>(blocks, plans);
    return launched("plan_exponents_blocks");
  });
}

Status write_exponents(KeyForm form, NewKind kind, const ExponentsBlock* blocks,
                       uint32_t num_blocks, PatchStatus* status, Stream stream) {
  if (num_blocks == 0) return {};
  return with_form_and_kind(form, kind, [&]<KeyForm kForm, NewKind kKind>() {
    write_exponents_blocks<kForm, kKind>
        <<<num_blocks, kExponentsThreads, 0, stream>>>(blocks, status);
    return launched("write_exponents_blocks");
  });
}

Status check_exponents(KeyForm form, const ExponentsBlock* blocks, uint32_t num_blocks,
                       PatchStatus* status, Stream stream) {
  if (num_blocks == 0) return {};
  return with_form(form, [&]<KeyForm kForm>() {
    check_exponents_blocks<kForm><<<num_blocks, kExponentsThreads, 0, stream>>>(blocks, status);
    return launched("check_exponents_blocks");
  });
}

Status join_exponents(KeyForm form, const ExponentsBlock* blocks, uint32_t num_blocks,
                      const PatchStatus* status, Stream stream) {
  if (num_blocks == 0) return {};
  return with_form(form, [&]<KeyForm kForm>() {
    join_exponents_blocks<kForm><<<num_blocks, kExponentsThreads, 0, stream>>>(blocks, status);
    return launched("join_exponents_blocks");
  });
}

}  // namespace deltawire::cuda
