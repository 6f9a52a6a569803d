"""Kernels in Triton's language to machine code, by the triton package that the user has installed. Used by braze._C alone."""

import functools
import importlib.metadata
import linecache


class Missing(RuntimeError):
    pass


def version():
    """The version of the triton package, or "" without one. Does not load it."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def define(text, kernel):
    """The function `kernel` of a module whose text is `text`."""
    # Triton reads a kernel's source back through inspect, which asks linecache.
    name = f"<braze kernel {kernel}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"__name__": "braze_kernel"}
    exec(compile(text, name, "exec"), space)
    return space[kernel]


def compile_kernel(*source):
    """As `compile_any`, without the scratch memory: raises where a kernel wants some."""
    *made, scratch = compile_any(*source)
    if scratch:
        raise RuntimeError("triton made a kernel that needs scratch memory")
    return tuple(made)


def compile_any(text, kernel, arguments, warps, sm, stages=0, contract=False, aligned=()):
    """(cubin, threads per block, bytes of shared memory, bytes of scratch memory per program).

    `arguments`: pairs of a name and Triton's type.

    `aligned`: which arguments are multiples of 16; empty: pointers but the last, the error word. `stages`: of loads ahead
    of their use. `contract`: products and sums may become one operation. Needs no GPU. Raises Missing without a usable triton package.
    """
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as e:
        raise Missing(f"options={{'codegen': 'triton'}} needs the package triton (pip install triton): {e}") from None
    if not aligned:
        aligned = [t.startswith("*") for _, t in arguments[:-1]]
    aligned = {(i,): [["tt.divisibility", 16]] for i, a in enumerate(aligned) if a}
    source = ASTSource(define(text, kernel), signature=dict(arguments), constexprs={}, attrs=aligned)
    options = {"num_warps": warps, "enable_fp_fusion": contract}
    if stages:
        options["num_stages"] = stages
    if "enable_reflect_ftz" in _options():
        options["enable_reflect_ftz"] = False  # denormals are numbers
    made = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
    meta = made.metadata
    if getattr(meta, "profile_scratch_size", 0):
        raise RuntimeError(f"triton {triton.__version__} made a kernel that needs scratch memory")
    return made.asm["cubin"], meta.num_warps * 32, meta.shared, getattr(meta, "global_scratch_size", 0)


@functools.cache
def _options():
    from triton.backends.nvidia.compiler import CUDAOptions

    return set(CUDAOptions.__dataclass_fields__)
