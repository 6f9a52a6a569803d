"""Small programs of PyTorch's operators at several sizes, types and layouts: which are slower compiled than in eager mode.

    python -m benchmarks.sweep [--device cuda] [--part I/N]

One thread. Each is timed in turn with eager, the least of 6 turns (of 16 where it came out slower); `--part` runs every N-th
program, so that processes share them. Prints the slower ones (by more than 4 %) with both times, and at the end the geometric mean.
"""

import argparse
import math
import time
import warnings

import torch
import torch.nn.functional as F

import braze

# x and y: r x c; z: c; i: r places; j: r x c places; s: 100 boundaries; m: c x c
MATRICES = """
x+y | x*2+1 | x.relu() | F.gelu(x) | F.silu(x)*y | x.sigmoid() | x.tanh() | x.exp() | x.log() | (x*x).sum() | x.sum(0)
x.sum(-1) | x.mean(-1) | x.mean(0) | x.max(-1)[0] | x.max(-1) | x.argmax(-1) | x.argmin(0) | x.amax(0) | x.min()
x.softmax(-1) | x.log_softmax(-1) | x.softmax(0) | x.cumsum(-1) | x.cumsum(0) | x.cumprod(-1) | x.logcumsumexp(-1)
x.cummax(-1) | x.std(-1) | x.var(0) | x.norm() | x.norm(dim=-1) | x.prod(-1) | x.logsumexp(-1) | x.logsumexp(0)
x.sort(-1) | x.topk(5,-1) | x.topk(1,-1) | x.kthvalue(3,-1) | x.median(-1) | x.argsort(-1) | x.unique() | x.nonzero()
x[x>0] | x.masked_fill(x>0,0) | torch.where(x>0,x,y) | x.clamp(-1,1) | x.abs().sqrt() | x.sign() | x.round()
x.floor() | x.frac() | x%2 | x.t().contiguous() | x.t()+y.t() | x+y.t() | torch.cat([x,y],0) | torch.cat([x,y],1)
torch.stack([x,y],0) | torch.stack([x,y],-1) | x.flip(0) | x.flip(-1) | x.roll(3,-1) | x.roll(3,0) | x.repeat(2,1)
x.repeat(1,2) | x.repeat_interleave(2,0) | x.repeat_interleave(2,1) | x.tril() | x.triu(1) | x.diag() | x.trace()
torch.outer(x[0],y[0]) | x@m | x@m.t() | x@m+z | F.linear(x,m,z) | F.linear(x,m,z).relu() | m@x[0] | x[0]@m
(x[None]@m[None]) | torch.addmm(z,x,m) | torch.einsum('ij,kj->ik',x,y) | torch.einsum('ij,ij->i',x,y)
torch.cdist(x[:64],y[:64]) | F.cosine_similarity(x,y) | F.normalize(x) | F.pairwise_distance(x,y)
F.layer_norm(x,x.shape[-1:],z,z) | F.rms_norm(x,x.shape[-1:],z) | F.batch_norm(x,z*0,z*0+1) | F.group_norm(x,4)
F.instance_norm(x[None]) | F.dropout(x,0.1,True) | F.embedding(i,x) | x[i] | x[:,i] | x.index_select(0,i)
x.index_select(1,i) | x.gather(0,j) | x.gather(1,j) | x.index_add(0,i,y) | x.scatter_add(0,j,y) | x.scatter(1,j,y)
x.index_copy(0,i,y) | x.index_fill(0,i,1.0) | x.take(j) | torch.bincount(i) | torch.histc(x,10)
torch.searchsorted(s,x) | torch.bucketize(x,s) | F.one_hot(i,x.shape[0]) | torch.isin(i,i[:5])
F.cross_entropy(x,i%x.shape[1]) | F.nll_loss(x,i%x.shape[1]) | F.mse_loss(x,y) | F.l1_loss(x,y)
F.smooth_l1_loss(x,y) | F.huber_loss(x,y) | F.binary_cross_entropy_with_logits(x,y.sigmoid())
F.kl_div(x,y.softmax(-1)) | F.hinge_embedding_loss(x,y) | F.softplus(x) | F.mish(x) | F.elu(x) | F.leaky_relu(x)
F.hardswish(x) | F.glu(x) | F.softmin(x,-1) | F.gumbel_softmax(x) | F.prelu(x,z[:1]) | F.celu(x) | F.selu(x)
F.relu6(x) | F.hardtanh(x) | F.tanhshrink(x) | F.softsign(x) | F.logsigmoid(x) | F.threshold(x,0.1,0.)
x.to(torch.float64) | x.to(torch.bfloat16) | x.long() | x.bool() | (x>0).sum() | (x>0).any(-1) | (x>0).all()
(x==y).float().mean() | x.isnan().any() | x.clone() | x.contiguous() | x.t().reshape(-1) | x.expand(4,*x.shape).sum(0)
x.unfold(0,4,2).sum(-1) | torch.zeros_like(x) | torch.ones_like(x)+x | torch.arange(x.shape[0])+1
torch.linspace(0,1,x.shape[0]) | torch.full_like(x,3) | torch.rand_like(x) | torch.randn_like(x)+x
torch.bernoulli(x.sigmoid()) | torch.randint(0,10,x.shape) | torch.eye(x.shape[0]) | torch.randperm(x.shape[0])
x.pow(2) | x.pow(3) | x.abs().pow(0.5) | x**1.7 | x.erf() | x.sin()+x.cos() | x.atan2(y) | x.lgamma() | x.digamma()
x.erfinv() | torch.special.i0(x) | x.expm1() | x.abs().log1p() | x.rsqrt() | x.reciprocal() | torch.lerp(x,y,0.3)
torch.addcmul(x,y,z) | torch.addcdiv(x,y,z) | torch.hypot(x,y) | torch.fmod(x,y) | torch.remainder(x,y)
torch.maximum(x,y) | torch.logaddexp(x,y) | x.nan_to_num() | x//0.3 | x.trunc()
x.view(-1,4,x.shape[1]//4).transpose(0,1).contiguous() | x.view(-1,4,x.shape[1]//4).transpose(0,1)+1
x.view(-1,4,x.shape[1]//4).sum(1) | x.view(-1,4,x.shape[1]//4).mean((0,2)) | x.view(-1,4,x.shape[1]//4).softmax(1)
F.pad(x,(1,1)) | F.pad(x,(0,0,1,1)) | F.pad(x[None],(1,1,1,1),mode='reflect')
F.pad(x[None],(1,1,1,1),mode='replicate') | F.pad(x[None],(1,1,1,1),mode='circular')
x.chunk(2,-1)[0]*x.chunk(2,-1)[1] | x.split(8,0)[0]+1 | torch.vander(x[0],4) | torch.tensordot(x,m,1)
torch.kron(x[:8,:8],y[:8,:8]) | torch.bmm(x.view(4,-1,x.shape[1]),y.view(4,-1,y.shape[1]).transpose(1,2))
torch.combinations(x[0,:8]) | torch.meshgrid(x[0],y[0],indexing='ij')[0]+1 | torch.fft.rfft(x).abs()
torch.fft.fft(x) | torch.fft.ifft(torch.fft.fft(x)).real | torch.linalg.norm(x) | torch.linalg.vector_norm(x,dim=0)
torch.linalg.inv(x[:8,:8]) | torch.linalg.det(x[:8,:8]) | torch.linalg.qr(x[:8,:8]) | torch.linalg.svd(x[:8,:8])
torch.linalg.solve(x[:8,:8],y[:8,0]) | torch.linalg.cholesky(x[:8,:8]@x[:8,:8].t()+9*torch.eye(8))
torch.linalg.eigh(x[:8,:8]) | torch.matrix_exp(x[:8,:8]) | x.diff() | x.corrcoef() | x.cov() | torch.trapezoid(x)
torch.quantile(x,0.3,-1) | torch.nanmean(x,-1) | torch.count_nonzero(x) | torch.cross(x[:,:3],y[:,:3],dim=-1)
torch.renorm(x,2,0,1.0) | torch.aminmax(x) | torch.std_mean(x,-1) | torch.cartesian_prod(x[0,:9],y[0,:9])
torch.block_diag(x[:4,:4],y[:4,:4]) | torch.diagonal(x)*2 | torch.diag_embed(x[0]) | torch.rot90(x) | torch.mode(i)
"""

# u: an image; k, kd, k1, kt: filters; a, b: of channels; grid, theta: of places
IMAGES = """
F.conv2d(u,k) | F.conv2d(u,k,padding=1).relu() | F.conv2d(u,kd,groups=u.shape[1]) | F.conv2d(u,k1) | F.max_pool2d(u,2)
F.max_pool2d(u,3,2,1) | F.avg_pool2d(u,2) | F.adaptive_avg_pool2d(u,1) | F.adaptive_avg_pool2d(u,3) | u.mean((2,3))
F.interpolate(u,scale_factor=2) | F.interpolate(u,scale_factor=2,mode='bilinear')
F.interpolate(u,size=(7,7),mode='bicubic') | F.interpolate(u,size=(9,9),mode='area') | F.pixel_shuffle(u,2)
F.pixel_unshuffle(u,2) | F.unfold(u,3) | F.conv_transpose2d(u,kt) | F.batch_norm(u,a,b)
F.batch_norm(u,a.clone(),b.clone(),training=True) | F.group_norm(u,2) | F.instance_norm(u) | F.pad(u,(1,1,1,1))
F.pad(u,(2,2,2,2),mode='reflect') | u.permute(0,2,3,1).contiguous() | u.flatten(1) | u.flip(-1) | F.lp_pool2d(u,2,2)
F.local_response_norm(u,3) | F.channel_shuffle(u,2) | F.dropout2d(u) | F.grid_sample(u,grid,align_corners=False)
F.affine_grid(theta,u.shape,align_corners=False) | F.adaptive_max_pool2d(u,3) | F.conv1d(u[:,:,0],k[:,:,0])
F.conv3d(u[:,:,None],k[:,:,None]) | F.scaled_dot_product_attention(u,u,u)
F.scaled_dot_product_attention(u,u,u,is_causal=True) | u.softmax(1) | u.sum(1) | u*a[:,None,None]+1 | u.amax((2,3))
u.var((0,2,3)) | F.normalize(u,dim=1)
"""


def programs(text, names):
    for program in text.replace("\n", "|").split("|"):
        if program.strip():
            yield program.strip(), eval(f"lambda {names}: {program}", {"torch": torch, "F": F})


def cases(cuda):
    for dtype in (torch.float32, torch.bfloat16):
        for r, c in ((512, 512), (4096, 2048)) if cuda else ((8, 16), (64, 128), (512, 512), (2048, 1024)):
            torch.manual_seed(0)
            x, y, m = (torch.randn(*size).to(dtype) for size in ((r, c), (r, c), (c, c)))
            i, j = torch.randint(0, min(r, c), (r,)), torch.randint(0, min(r, c), (r, c))
            args = (x, y, torch.randn(c).abs().to(dtype), i, j, torch.linspace(-2, 2, 100).to(dtype), m)
            for name, f in programs(MATRICES, "x, y, z, i, j, s, m"):
                yield f"{name} {r}x{c} {dtype}", f, args
        for n, channels, h in ((4, 16, 32), (32, 64, 56)) if cuda else ((1, 8, 8), (4, 16, 32), (8, 64, 56)):
            for form in (torch.contiguous_format, torch.channels_last):
                torch.manual_seed(0)
                filters = [
                    (channels, channels, 3, 3),
                    (channels, 1, 3, 3),
                    (channels * 2, channels, 1, 1),
                    (channels, channels, 2, 2),
                ]
                args = (
                    torch.randn(n, channels, h, h).to(dtype).contiguous(memory_format=form),
                    *(torch.randn(size).to(dtype) for size in filters),
                    torch.randn(channels).to(dtype),
                    torch.rand(channels).to(dtype) + 0.5,
                    torch.rand(n, h, h, 2).to(dtype) * 2 - 1,
                    torch.randn(n, 2, 3).to(dtype),
                )
                for name, f in programs(IMAGES, "u, k, kd, k1, kt, a, b, grid, theta"):
                    yield f"{name} {n}x{channels}x{h} {form} {dtype}", f, args


def ratio(f, args, wait):
    """Compiled time by eager's, and both in seconds; None: eager refuses the program."""
    try:
        f(*args)
    except Exception:  # of this size or type
        return None
    compiled = braze.compile(f)
    for _ in range(3):
        compiled(*args)

    def timed(g, n):
        wait()
        start = time.perf_counter()
        for _ in range(n):
            g(*args)
        wait()
        return (time.perf_counter() - start) / n

    n = max(1, min(200, int(0.003 / max(timed(f, 1), 1e-7))))
    best = [math.inf, math.inf]
    for turn in range(16):
        if turn == 6 and best[1] <= best[0] * 1.04:
            break
        best = [min(t, timed(g, n)) for t, g in zip(best, (f, compiled))]
    return best[1] / best[0], *best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--part", default="0/1", metavar="I/N")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    cuda = options.device == "cuda"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ratios = []
    for number, (name, f, args) in enumerate(cases(cuda)):
        if number % parts != part:
            continue
        made = ratio(f, tuple(a.to(options.device) for a in args), torch.cuda.synchronize if cuda else lambda: None)
        if made is None:
            continue
        ratios.append(made[0])
        if made[0] > 1.04:
            print(
                f"{made[0]:.2f} {name.replace('torch.', '')}: eager {made[1] * 1e6:.1f} us, compiled {made[2] * 1e6:.1f}",
                flush=True,
            )
    slower = sum(r > 1.04 for r in ratios)
    mean = math.exp(-sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} programs, {mean:.2f} of eager's speed, {slower} slower")


if __name__ == "__main__":
    main()
