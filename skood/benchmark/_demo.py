"""The demo behind ``python -m skood``.

Slow imports (scikit-learn, torch) are made when the job runs, so that
``skood --help`` is fast.
"""

# Authors: The skood developers
# SPDX-License-Identifier: BSD-3-Clause


def run_demo(
    id_data="digits",
    ood_data=None,
    *,
    folder=None,
    left_out=None,
    n_train=None,
    n_test=None,
    max_epochs=None,
    tpr_min=0.8,
    fpr_max=0.2,
    random_state=0,
    out=None,
    verbose=0,
):
    r"""Train a network, compare detectors on it, and tune its reject option.

    This function implements ``python -m skood``. A small convolutional network is
    trained on ID samples only; detectors are fitted on its features, and evaluated on
    held-out ID and OOD samples. A reject option on each pair of scores is certified
    on a validation set and evaluated on a test set. Read more in the
    :ref:`User Guide <command_line>`.

    Parameters
    ----------
    id_data : str, default="digits"
        The ID data: "digits", included in scikit-learn, or the name of a folder of IDX
        files in `folder`. Without `folder`, "mnist" is downloaded.

    ood_data : str, default=None
        The OOD data, with the same names; all its samples are OOD. None: the samples of
        the classes `left_out` of the ID data.

    folder : str or path-like, default=None
        Parent folder of the folders of IDX files; see
        :func:`~skood.datasets.load_idx_images`.

    left_out : int or sequence of int, default=None
        Classes of the ID data that are OOD. None: 8 and 9 without `ood_data`, and
        no classes with it.

    n_train, n_test : int, default=None
        Numbers of ID samples to train on and to hold out. None: 70 % and 30 % of them,
        at most 7,000 and 3,000.

    max_epochs : int, default=None
        Passes over the training samples. None: as many as process 80,000 samples, but
        at least 10 and at most 40.

    tpr_min, fpr_max : float, default=0.8, 0.2
        Minimal fraction of ID samples and maximal fraction of OOD samples to accept, in
        [0, 1].

    random_state : int, default=0
        Seeds the split, the network and the samples that certify.

    out : str or path-like, default=None
        Folder to write ``table.csv``, ``results.json`` and, if matplotlib is
        installed, plots to. It is created if missing; existing files of these names
        are replaced.

    verbose : int, default=0
        1 shows progress bars.

    Returns
    -------
    result : :class:`~sklearn.utils.Bunch`
        text : str
            The report that ``python -m skood`` prints.
        table : list of dict
            One row per method; undefined and unattainable numbers are NaN.
        options, parts, versions : dict
            The given options, the numbers of samples of each part, and versions of
            the software.
        accuracy : float
            Accuracy of the network on the held-out ID samples.
        n_epochs, train_seconds, feature_seconds : int, float, float
            Epochs and duration of the training, and duration of feature extraction.
        common_fpr : float
            The smallest FPR that all methods attain at a TPR of `tpr_min`.
        y_true, y_pred : ndarray of shape (n_held_out,)
            Labels of the held-out samples, -1 for OOD samples, and predictions.
        is_test : ndarray of shape (n_held_out,), dtype bool
            The held-out samples of the test part, used to evaluate reject options.
        scores : dict of str to ndarray of shape (n_held_out,)
            Score of each detector, high for ID samples.
        classifier, detectors : TorchClassifier, dict of str to detectors
            The fitted network, and the detectors on its features.
        reject_options : dict of str to Bunch
            For each pair of scores `classifier` (a
            :class:`~skood.rejection.RejectOptionClassifier`), `report` (on the test
            part) and `reasons` (numbers of rejected ID and OOD samples by reason).
            If no rule is certified by the validation part these are None, and `error`
            is the :class:`~skood.exceptions.NotCertifiableError`.
        files : list of Path
            The written files.

    Raises
    ------
    ValueError
        If a parameter is invalid or incompatible with the data, or a file is broken.
    OSError
        If a folder or file is missing or cannot be written.

    See Also
    --------
    skood.datasets.load_digits_ood : The default data.
    skood.metrics.selective_risk_at : The selective risk in the table.
    skood.rejection.RejectOptionClassifier : The reject option.

    Notes
    -----
    Everything runs on one CPU thread (the network on a GPU if available), so that
    seconds are comparable, and independent of other processes on the machine.

    The selective risk in the table is the risk of the best rule on the same samples: a
    property of the scores. The performance of a rule on samples not used to select it
    is in `reject_options`.

    Examples
    --------
    >>> from skood.benchmark import run_demo
    >>> result = run_demo(max_epochs=2)
    >>> result.parts["train"]
    {'id': 1010, 'ood': 0}
    >>> sorted(result.table[0])[:3]
    ['aupr_in', 'aupr_out', 'aurc']
    >>> print(result.text)  # doctest: +SKIP
    """
    from skood.benchmark._options import Options
    from skood.benchmark._parts import prepare
    from skood.benchmark._run import run

    options = Options(
        id_data=id_data,
        ood_data=ood_data,
        folder=folder,
        left_out=left_out,
        n_train=n_train,
        n_test=n_test,
        max_epochs=max_epochs,
        tpr_min=tpr_min,
        fpr_max=fpr_max,
        random_state=random_state,
        out=out,
    )
    return run(options, prepare(options), verbose=verbose)
