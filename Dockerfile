# docker build -t nemar-convert .
# docker run --rm --user "$(id -u):$(id -g)" \
#     -v ~/data/nm000103:/data/nm000103:ro -v /srv/serving:/serving \
#     nemar-convert /data/nm000103 --dest /serving
FROM python:3.12-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends git git-annex \
    && rm -rf /var/lib/apt/lists/*

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 MNE_DONTWRITE_HOME=true

# Dependencies change rarely: a layer of their own, that a change to the code leaves valid.
WORKDIR /opt/nemar-convert
COPY pyproject.toml constraints.txt ./
RUN python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
    && pip install --constraint constraints.txt --requirement requirements.txt

COPY README.md LICENSE ./
COPY schemas schemas
COPY scripts/compile_passes.py scripts/
COPY converter converter
RUN pip install --no-deps .

RUN useradd --create-home converter
USER converter
WORKDIR /home/converter
ENTRYPOINT ["nemar-convert"]
CMD ["--help"]
