"""The fused kernels of optimizers, which the compiler fuses itself: the same formulas in the operators that it knows."""

import torch

from ._scalars import addcdiv_


def gradient(grad, grad_scale, maximize):
    if grad_scale is not None:
        grad.div_(grad_scale)
    return -grad if maximize else grad


def kept(found_inf, tensors):
    """What the tensors are to hold again if an infinity was found."""
    return [t.clone() for t in tensors] if found_inf is not None else None


def restore(found_inf, tensors, before):
    if found_inf is not None:
        for t, b in zip(tensors, before):
            t.copy_(torch.where(found_inf == 1, b, t))


def adam(
    self,
    grads,
    exp_avgs,
    exp_avg_sqs,
    max_exp_avg_sqs,
    state_steps,
    *,
    lr,
    beta1,
    beta2,
    weight_decay,
    eps,
    amsgrad,
    maximize,
    grad_scale=None,
    found_inf=None,
    decoupled,
):
    for i, param in enumerate(self):
        changed = [param, exp_avgs[i], exp_avg_sqs[i], *([max_exp_avg_sqs[i]] if amsgrad else [])]
        before = kept(found_inf, changed)
        grad, step = gradient(grads[i], grad_scale, maximize), state_steps[i]
        if weight_decay != 0:
            if decoupled:
                param.mul_(1 - lr * weight_decay)
            else:
                grad = grad.add(param, alpha=weight_decay)
        exp_avgs[i].lerp_(grad, 1 - beta1)
        exp_avg_sqs[i].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        second = exp_avg_sqs[i]
        if amsgrad:
            second = max_exp_avg_sqs[i].copy_(torch.maximum(max_exp_avg_sqs[i], second))
        denominator = (second.sqrt() / (1 - beta2**step).sqrt()).add_(eps)
        addcdiv_(param, exp_avgs[i], denominator, value=-(lr / (1 - beta1**step)))
        restore(found_inf, changed, before)


def fused_adam_(*tensors, **options):
    adam(*tensors, **options, decoupled=False)


def fused_adamw_(*tensors, **options):
    adam(*tensors, **options, decoupled=True)


def fused_sgd_(
    self,
    grads,
    momentum_buffer_list,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
    is_first_step,
    grad_scale=None,
    found_inf=None,
):
    for i, param in enumerate(self):
        changed = [param, *([momentum_buffer_list[i]] if momentum != 0 else [])]
        before = kept(found_inf, changed)
        grad = gradient(grads[i], grad_scale, maximize)
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        if momentum != 0:
            if is_first_step:
                momentum_buffer_list[i].copy_(grad)
            else:
                momentum_buffer_list[i].mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(momentum_buffer_list[i], alpha=momentum) if nesterov else momentum_buffer_list[i]
        param.add_(grad, alpha=-lr)
        restore(found_inf, changed, before)


def fused_adagrad_(
    self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps, maximize, grad_scale=None, found_inf=None
):
    for i, param in enumerate(self):
        changed = [param, state_sums[i]]
        before = kept(found_inf, changed)
        grad = gradient(grads[i], grad_scale, maximize)
        if weight_decay != 0:
            grad = grad.add(param, alpha=weight_decay)
        state_sums[i].addcmul_(grad, grad)
        addcdiv_(param, grad, state_sums[i].sqrt().add_(eps), value=-(lr / (1 + (state_steps[i] - 1) * lr_decay)))
        restore(found_inf, changed, before)
